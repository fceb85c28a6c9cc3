// Reads openapi.json and shows it. Whatever comes from there, or from an answer, goes in as text and never as markup.
"use strict";

const METHODS = ["get", "post", "put", "patch", "delete"];
const MOST_SHOWN = 1 << 20; // characters of an answer
const NIGHTLY = { name: "nightly", task: "report", schedule: [{ cron: "30 2 * * *" }], timezone: "Europe/London" };
// For what a schema alone gives no idea of; all else is made from the schema.
const EXAMPLES = {
  NewJob: NIGHTLY,
  NewJobs: { jobs: [NIGHTLY] },
  Submit: { job: { name: "mail", task: "send_mail" }, runs: [{ payload: { to: "somebody" } }] },
  Edit: { priority: 7, reason: "urgent" },
  NewBulk: { action: "jobs.pause", filter: { prefix: "night" }, dry_run: true },
  NewTenant: { name: "shop" },
  NewKey: { name: "ci", role: "viewer" },
};

const $ = (id) => document.getElementById(id);
let described = null;
let operations = []; // {id, method, path, noun, spec, link}
let running = null; // the request that is on its way

function make(tag, given = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat().filter((each) => each != null)); // strings become text
  return made;
}

// schemas

function resolved(schema) {
  const seen = new Set();
  while (schema && schema.$ref && !seen.has(schema.$ref)) {
    seen.add(schema.$ref);
    const { $ref, ...beside } = schema;
    const name = $ref.split("/").pop();
    schema = { title: name, ...described.components.schemas[name], ...beside };
  }
  return schema || {};
}

function choices(schema) {
  return (schema.anyOf || schema.oneOf || []).map(resolved);
}

function kindOf(given) {
  const schema = resolved(given);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  const several = choices(schema);
  if (several.length) return several.map(kindOf).join(" | ");
  if (schema.type === "array") {
    const each = schema.items ? kindOf(schema.items) : "anything";
    return each.includes(" | ") ? `(${each})[]` : `${each}[]`;
  }
  if (schema.type === "object" || schema.properties) return schema.properties ? schema.title || "object" : "object";
  return [schema.type || "anything", schema.format].filter(Boolean).join(", ");
}

function limitsOf(given) {
  const schema = resolved(given);
  const said = [];
  const bounds = [["minimum", "maximum", ""], ["minLength", "maxLength", " characters"], ["minItems", "maxItems", " items"]];
  for (const [least, most, what] of bounds) {
    if (least in schema && most in schema) said.push(`${schema[least]} to ${schema[most]}${what}`);
    else if (least in schema) said.push(`at least ${schema[least]}${what}`);
    else if (most in schema) said.push(`at most ${schema[most]}${what}`);
  }
  if (schema.pattern) said.push(`matches ${schema.pattern}`);
  if ("default" in schema && !["null", '""', "[]", "{}"].includes(JSON.stringify(schema.default))) said.push(`default ${JSON.stringify(schema.default)}`);
  if (schema.examples) said.push(`such as ${schema.examples.map((each) => JSON.stringify(each)).join(", ")}`);
  for (const one of choices(schema)) if (one.type !== "null") said.push(...limitsOf(one));
  return [...new Set(said)];
}

// What can be opened: the object inside, if there is one.
function inside(given) {
  const schema = resolved(given);
  if (schema.properties && Object.keys(schema.properties).length) return [schema];
  if (schema.type === "array" && schema.items) return inside(schema.items);
  if (schema.additionalProperties && typeof schema.additionalProperties === "object") return inside(schema.additionalProperties);
  return choices(schema).flatMap(inside);
}

function fields(schema) {
  const needed = new Set(schema.required || []);
  const box = make("div", { class: "schema" });
  for (const [name, of] of Object.entries(schema.properties || {})) box.append(field(name, of, needed.has(name)));
  return box;
}

function field(name, of, needed) {
  const head = [make("code", { class: "name" }, name), " ", make("span", { class: "kind mono" }, kindOf(of)), needed ? make("span", { class: "must" }, " required") : null];
  const note = [resolved(of).description?.replace(/\.$/, ""), ...limitsOf(of)].filter(Boolean).join("; ");
  const notes = note ? make("span", { class: "note" }, note) : null;
  const within = inside(of);
  if (!within.length) return make("div", { class: "field" }, head, notes);
  const opened = make("details", { class: "field" }, make("summary", {}, head), notes);
  opened.addEventListener("toggle", () => { // when asked for: a schema may hold itself
    if (opened.open && !opened.dataset.filled) {
      opened.dataset.filled = "yes";
      for (const each of within) opened.append(within.length > 1 ? make("p", { class: "dim" }, each.title || "or") : "", fields(each));
    }
  });
  return opened;
}

function exampleOf(given, depth = 0) {
  const schema = resolved(given);
  if (depth === 0 && EXAMPLES[schema.title]) return EXAMPLES[schema.title];
  if (schema.examples) return schema.examples[0];
  if ("const" in schema) return schema.const;
  if (schema.enum) return schema.enum[0];
  if ("default" in schema && schema.default !== null) return schema.default;
  const several = choices(schema).filter((each) => each.type !== "null");
  if (several.length) return exampleOf(several[0], depth + 1);
  if (schema.type === "array") return depth < 6 && schema.items ? [exampleOf(schema.items, depth + 1)] : [];
  if (schema.properties) {
    const needed = new Set(schema.required || []);
    const shown = Object.entries(schema.properties).filter(([name]) => needed.has(name));
    return depth < 6 ? Object.fromEntries(shown.map(([name, of]) => [name, exampleOf(of, depth + 1)])) : {};
  }
  if (schema.format === "date-time") return "2027-01-01T00:00:00Z";
  if (schema.format === "uuid") return "00000000-0000-0000-0000-000000000000";
  return { string: "text", integer: schema.minimum || 1, number: schema.minimum || 1, boolean: true, object: {} }[schema.type] ?? null;
}

// the list

function list() {
  const groups = described.tags.map(({ name, description }) => {
    const mine = operations.filter((each) => each.noun === name);
    const links = mine.map((each) => {
      each.link = make("a", { href: `#${each.id}`, title: each.spec.summary }, badge(each.method), make("span", { class: "path" }, short(each.path)));
      return make("li", {}, each.link);
    });
    return mine.length ? make("section", {}, make("h2", { title: description }, name.replace("_", " ")), make("ul", {}, links)) : null;
  });
  $("list").replaceChildren(...groups.filter(Boolean));
  filter();
}

function filter() {
  const words = $("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  let shown = 0;
  for (const each of operations) {
    const text = `${each.method} ${each.path} ${each.id} ${each.spec.summary}`.toLowerCase();
    const fits = words.every((word) => text.includes(word));
    each.link.parentElement.hidden = !fits;
    shown += fits;
  }
  for (const section of $("list").children) section.hidden = !section.querySelector("li:not([hidden])");
  $("count").textContent = words.length ? `${shown} of ${operations.length} operations` : `${operations.length} operations`;
}

const short = (path) => path.replace("/api/v1", "");
const badge = (method) => make("span", { class: `badge ${method}` }, method === "delete" ? "DEL" : method.toUpperCase());

// one operation

function show() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  const chosen = operations.find((each) => each.id === wanted) || (wanted && wanted !== "main" ? null : operations[0]);
  if (running) running.abort();
  open(false);
  for (const each of operations) each.link.removeAttribute("aria-current");
  if (!chosen) return $("main").replaceChildren(make("p", {}, "There is no such operation."));
  chosen.link.setAttribute("aria-current", "page");
  chosen.link.scrollIntoView({ block: "nearest" });
  document.title = `${chosen.spec.summary} · Mainspring API`;
  const { spec } = chosen;
  const parts = [
    make("h1", {}, spec.summary),
    make("div", { class: "where" }, badge(chosen.method), make("code", {}, chosen.path)),
    spec.description ? make("p", { class: "dim" }, inCode(spec.description)) : null,
  ];
  if (spec.parameters) parts.push(make("h2", {}, "Parameters"), parameters(spec.parameters));
  const body = bodyOf(spec);
  if (body) parts.push(make("h2", {}, `Body${spec.requestBody.required ? "" : " (may be left out)"}`), make("p", { class: "dim" }, resolved(body).description || ""), fields(resolved(body)),
    make("details", {}, make("summary", {}, "Example"), copied(JSON.stringify(exampleOf(body), null, 2))));
  const curl = make("div", { class: "curl" });
  const form = tryIt(chosen, body, (asked) => curl.replaceChildren(copied(curlOf(chosen, asked))));
  parts.push(make("h2", {}, "curl"), curl, make("h2", {}, "Try it"), form, make("h2", {}, "Answers"), ...answers(spec.responses));
  $("main").replaceChildren(...parts.filter(Boolean));
  window.scrollTo(0, 0);
}

const bodyOf = (spec) => spec.requestBody?.content?.["application/json"]?.schema;

function inCode(text) { // `x` is code
  return text.split("`").map((part, at) => (at % 2 ? make("code", {}, part) : part));
}

function parameters(given) {
  const box = make("div", { class: "schema" });
  for (const each of given) {
    const row = field(each.name, { ...each.schema, description: each.description || resolved(each.schema).description }, each.required);
    (row.querySelector(".kind") || row).append(make("span", { class: "dim" }, `, in ${each.in}`));
    box.append(row);
  }
  return box;
}

function answers(responses) {
  return Object.entries(responses).map(([status, answer]) => {
    const [media, content] = Object.entries(answer.content || {})[0] || ["", {}];
    const head = make("summary", {}, make("span", { class: `status s${status[0]}` }, status), ` ${answer.description} `, make("span", { class: "dim mono" }, media));
    const box = make("details", { class: "answer" }, head);
    box.addEventListener("toggle", () => {
      if (!box.open || box.dataset.filled) return;
      box.dataset.filled = "yes";
      for (const [name, of] of Object.entries(answer.headers || {})) box.append(field(name, { ...of.schema, description: of.description }, false));
      const schema = resolved(content.schema);
      box.append(schema.properties ? fields(schema) : make("p", { class: "mono" }, kindOf(content.schema || {})));
    });
    return box;
  });
}

function copied(text) {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch { // no clipboard without TLS, but on loopback
      getSelection().selectAllChildren(pre);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  const pre = make("pre", { tabindex: "0" }, text);
  return make("div", { class: "with-copy" }, pre, button);
}

// asking

function tryIt(operation, body, changed) {
  const inputs = (operation.spec.parameters || []).map((each) => {
    const id = `in-${each.in}-${each.name}`;
    const example = resolved(each.schema).examples?.[0];
    const input = make("input", { id, autocomplete: "off", spellcheck: "false", required: each.in === "path", placeholder: example ?? "", "aria-label": `${each.name}, in ${each.in}` });
    const row = make("div", { class: "row" }, make("label", { for: id }, make("code", {}, each.name), " ", make("span", { class: "in" }, each.in)), input);
    return { ...each, input, row };
  });
  const area = body ? make("textarea", { id: "in-body", rows: "8", spellcheck: "false", "aria-label": "Body, JSON" }) : null;
  if (area) area.value = JSON.stringify(exampleOf(body), null, 2);
  const answered = make("div", { class: "answered", "aria-live": "polite" });
  const stop = make("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const form = make("form", { class: "try", autocomplete: "off" }, inputs.map((each) => each.row),
    area ? make("div", { class: "row tall" }, make("label", { for: "in-body" }, "Body"), area) : null,
    make("div", { class: "buttons" }, make("button", { class: "first", type: "submit" }, "Send"), stop), answered);
  const asked = () => request(operation, inputs, area);
  form.addEventListener("input", () => changed(asked()));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(asked(), answered, stop);
  });
  changed(asked());
  return form;
}

function request(operation, inputs, area) {
  let path = operation.path;
  const query = new URLSearchParams();
  const headers = {};
  for (const { name, in: place, input, schema } of inputs) {
    const value = input.value;
    if (place === "path" && value) path = path.replace(`{${name}}`, encodeURIComponent(value));
    if (place === "query" && value) for (const one of resolved(schema).type === "array" ? value.split(/\s*,\s*/) : [value]) query.append(name, one);
    if (place === "header" && value) headers[name] = value;
  }
  if (area && area.value.trim()) headers["Content-Type"] = "application/json";
  return { method: operation.method.toUpperCase(), path: path + (query.size ? `?${query}` : ""), headers, body: area && area.value.trim() ? area.value : null };
}

function curlOf(operation, { method, path, headers, body }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [`curl ${method === "GET" ? "" : `-X ${method} `}${quoted(location.origin + path)}`];
  if (operation.spec.responses["200"]?.content?.["text/event-stream"]) lines[0] = lines[0].replace("curl ", "curl -N ");
  lines.push(`-H "Authorization: Bearer $MAINSPRING_KEY"`);
  for (const [name, value] of Object.entries(headers)) lines.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (body) lines.push(`-d ${quoted(body)}`);
  return lines.join(" \\\n  ");
}

async function send({ method, path, headers, body }, answered, stop) {
  if (running) running.abort();
  const mine = new AbortController();
  running = mine;
  const key = $("key").value.trim();
  const given = key ? { ...headers, Authorization: `Bearer ${key}` } : headers;
  const began = performance.now();
  const took = () => `${Math.round(performance.now() - began)} ms`;
  answered.replaceChildren(make("p", { class: "dim" }, "Asking…"));
  stop.hidden = false;
  try {
    const answer = await fetch(path, { method, headers: given, body, signal: mine.signal, credentials: "omit", cache: "no-store", redirect: "error", referrerPolicy: "no-referrer" });
    const head = make("p", {}, make("span", { class: `status s${String(answer.status)[0]}` }, `${answer.status} ${answer.statusText}`), make("span", { class: "dim" }, ` in ${took()}`));
    const rows = [...answer.headers].map(([name, value]) => make("tr", {}, make("td", { class: "mono" }, name), make("td", { class: "mono" }, value)));
    const pre = make("pre", { tabindex: "0" });
    answered.replaceChildren(head, make("details", {}, make("summary", {}, `${rows.length} headers`), make("table", {}, make("tbody", {}, rows))), pre);
    await pour(answer, pre);
  } catch (error) {
    if (mine.signal.aborted) answered.append(make("p", { class: "dim" }, `Stopped after ${took()}.`));
    else answered.replaceChildren(make("p", { class: "s5" }, `No answer after ${took()}: ${error.message}`));
  } finally {
    if (running === mine) running = null;
    stop.hidden = true;
  }
}

async function pour(answer, pre) {
  const coming = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await coming?.read(); part && !part.done && text.length < MOST_SHOWN; part = await coming.read()) {
    text += part.value;
    pre.textContent = text;
  }
  if (text.length >= MOST_SHOWN) await coming.cancel();
  if ((answer.headers.get("content-type") || "").includes("json")) {
    try {
      pre.textContent = JSON.stringify(JSON.parse(text), null, 2);
    } catch { /* as it came, then */ }
  }
}

// keys and the start

function onKey(event) {
  const at = document.activeElement;
  const typing = at.matches("input, textarea");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    open(true);
    $("filter").select();
  } else if (event.key === "Escape" && at === $("filter")) {
    $("filter").value = "";
    filter();
  } else if (["ArrowDown", "ArrowUp"].includes(event.key) && $("side").contains(at)) {
    const links = operations.filter((each) => !each.link.parentElement.hidden).map((each) => each.link);
    const next = links.indexOf(at) + (event.key === "ArrowDown" ? 1 : -1);
    event.preventDefault();
    (links[next] || $("filter")).focus();
  } else if (event.key === "Enter" && at === $("filter")) {
    operations.find((each) => !each.link.parentElement.hidden)?.link.click();
  }
}

function open(wide) {
  $("side").classList.toggle("open", wide);
  $("menu").setAttribute("aria-expanded", String(wide));
}

async function start() {
  try {
    const answer = await fetch("/api/v1/openapi.json", { credentials: "omit" });
    if (!answer.ok) throw new Error(`it answers ${answer.status}`);
    described = await answer.json();
  } catch (error) {
    return $("main").replaceChildren(make("p", { class: "s5" }, `openapi.json cannot be read: ${error.message}`));
  }
  $("version").textContent = described.info.version;
  const order = new Map(described.tags.map(({ name }, at) => [name, at]));
  for (const [path, methods] of Object.entries(described.paths)) {
    for (const method of METHODS.filter((each) => each in methods)) {
      const spec = methods[method];
      operations.push({ id: spec.operationId, method, path, noun: spec.tags[0], spec, link: null });
    }
  }
  operations.sort((one, other) => order.get(one.noun) - order.get(other.noun));
  list();
  $("filter").addEventListener("input", filter);
  $("menu").addEventListener("click", () => open(!$("side").classList.contains("open")));
  $("list").addEventListener("click", (event) => { if (event.target.closest("[aria-current]")) open(false); }); // others by their hash
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", () => { if (location.hash !== "#main") { show(); $("main").focus({ preventScroll: true }); } });
  show();
}

start();
