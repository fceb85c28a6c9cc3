"""An attempt with the secrets that its payload names: looked up just before, masked in all that is left after."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias

from mainspring.domain.errors import InvalidRequest, Unavailable
from mainspring.domain.settling import Discarded, ErrorInfo, Failed, Outcome
from mainspring.worker.attempt import Attempt
from mainspring.worker.masking import Mask, MaskedOutput, masked
from mainspring.worker.outcomes import outcome_of
from mainspring.worker.secrets import Secrets, opened
from mainspring.worker.splitting import LONGEST_LINE

_Run: TypeAlias = Callable[[Attempt], Awaitable[Outcome]]


def with_secrets(way: _Run, secrets: Secrets) -> _Run:
    """Return a way to run attempts whose payloads name secrets. The ledger keeps the payload as it was written.

    A secret that the run may not have refuses it; one that cannot be asked for now fails the attempt.
    """

    async def run(attempt: Attempt) -> Outcome:
        try:
            payload, values = await opened(secrets, attempt.run.payload, tenant=attempt.run.job.tenant)
        except InvalidRequest as error:
            return Discarded(str(error))
        except Unavailable as error:
            return outcome_of(error)
        except Exception as error:  # noqa: BLE001 - a provider's: what it says may be secret
            message = f"the secrets could not be looked up: {type(error).__name__}"
            return Failed(error=ErrorInfo(type="secrets_failed", message=message))
        mask = Mask(values)
        given = replace(
            attempt,
            run=attempt.run._replace(payload=payload),
            output=MaskedOutput(attempt.output, mask, LONGEST_LINE),
            hidden=values,
        )
        return masked(await way(given), mask)

    return run
