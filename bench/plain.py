"""The peer of ``bench/api.py``: a table of jobs behind Starlette, uvicorn and asyncpg, as one would write it by hand.

It answers the same two questions with one statement each. It knows no keys, tenants, limits or log, checks nothing, and
keeps no schedule: all that ours does beyond this is in the difference.
"""

import argparse
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

TABLE = """
    CREATE TABLE plain_jobs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL UNIQUE,
        state text NOT NULL DEFAULT 'active',
        definition jsonb NOT NULL,
        next_fire_at timestamptz
    )
"""
_STATUS = "SELECT id, name, state, next_fire_at::text FROM plain_jobs WHERE name = $1"
_CREATE = "INSERT INTO plain_jobs (name, definition) VALUES ($1, $2) RETURNING id"


def app(dsn: str) -> Starlette:
    pool: asyncpg.Pool

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        nonlocal pool
        async with asyncpg.create_pool(dsn, min_size=10, max_size=10) as pool:
            yield

    async def status(request: Request) -> JSONResponse:
        row = await pool.fetchrow(_STATUS, request.path_params["name"])
        return JSONResponse({"code": "not_found"}, 404) if row is None else JSONResponse(dict(row))

    async def create(request: Request) -> JSONResponse:
        definition = await request.json()
        job_id = await pool.fetchval(_CREATE, definition["name"], json.dumps(definition))
        return JSONResponse({"id": job_id, **definition}, 201)

    routes = [
        Route("/api/v1/jobs/{name}/status", status),
        Route("/api/v1/jobs", create, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    uvicorn.run(app(parser.parse_args().dsn), port=0, loop="uvloop", http="httptools", access_log=False)


if __name__ == "__main__":
    main()
