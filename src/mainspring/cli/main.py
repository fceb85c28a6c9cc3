"""``mainspring``: the root of the command line. Groups are imported when they are asked for."""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from typing import Final

import click

from mainspring.cli.general import General, remember
from mainspring.domain.errors import MainspringError

_GROUPS: Final = {
    "audit": ("mainspring.cli.audit", "Was every slot decided, and none twice?"),
    "cluster": ("mainspring.cli.cluster", "Look at the processes that make up a cluster."),
    "completion": ("mainspring.cli.completion", "Print what makes a shell complete commands."),
    "config": ("mainspring.cli.config", "Check and show settings. Needs no server."),
    "cron": ("mainspring.cli.cron", "Read, explain and check schedules. Needs no server."),
    "dead-letters": ("mainspring.cli.dead_letters", "Look at runs that came to nothing; replay or discard them."),
    "dev": ("mainspring.cli.dev", "Run everything in one process, on an embedded Postgres."),
    "doctor": ("mainspring.cli.doctor", "Say what is wrong with an installation, and what to do about it."),
    "explain": ("mainspring.cli.explain", "Say what became of a job's slot, and why."),
    "jobs": ("mainspring.cli.jobs", "Write, look at and change jobs."),
    "keys": ("mainspring.cli.keys", "Make, list and revoke API keys."),
    "migrate": ("mainspring.cli.migrate", "Bring the schema of a database up to date."),
    "pools": ("mainspring.cli.pools", "Look at what waits, and who works for it."),
    "runs": ("mainspring.cli.runs", "Look at runs, follow them, retry and cancel them."),
    "secrets": ("mainspring.cli.secrets", "Put secrets that jobs may name; never show them."),
    "serve": ("mainspring.cli.serve", "Run roles over a database: scheduler, worker."),
    "tenants": ("mainspring.cli.tenants", "Make, look at and change tenants, and how much they may have."),
    "worker": ("mainspring.cli.worker", "Run the tasks of a module, for some pools."),
    "workers": ("mainspring.cli.workers", "Look at the processes that run tasks."),
}


class LazyGroup(click.Group):
    """Lists its groups without importing them: ``--help`` and completion stay quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return sorted(_GROUPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in _GROUPS:
            return None
        command = getattr(import_module(_GROUPS[cmd_name][0]), cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in sorted(_GROUPS.items())])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(metadata.version("mainspring"), prog_name="mainspring")
@click.option("--url", help="Ask this server instead of a database.  [default: MAINSPRING_URL]")
@click.option("--key", help="Who you are to the server. Others see it in ps: better set MAINSPRING_KEY.")
@click.option("--insecure", is_flag=True, help="Allow http:// to another machine, in the open.")
@click.option("--curl", is_flag=True, help="Print the requests of a command as curl commands; change nothing.")
@click.pass_context
def cli(context: click.Context, *, url: str | None, key: str | None, insecure: bool, curl: bool) -> None:
    """Mainspring, a job scheduler: every instant decided once, and open to audit."""
    remember(context, General(url=url, key=key, insecure=insecure, curl=curl))


def main() -> None:
    """Run the command line; what is wrong becomes one line on stderr and an exit status."""
    try:
        cli(prog_name="mainspring", standalone_mode=False)
    except MainspringError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_status)
    except click.exceptions.NoArgsIsHelpError as asked:
        asked.show()
        sys.exit(asked.exit_code)
    except click.UsageError as error:
        click.echo(f"error: {error.format_message()}", err=True)
        if error.ctx is not None:
            click.echo(f"see {error.ctx.command_path} --help", err=True)
        sys.exit(error.exit_code)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
