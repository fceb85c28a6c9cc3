"""What ``import mainspring`` offers is sorted, complete and documented."""

import doctest
import inspect
import sys

import pytest

import mainspring


def test_the_list_of_names_is_sorted_and_complete() -> None:
    modules = {"http"}  # the builders of HTTP requests
    late = {"Client"}  # found when it is asked for
    offered = modules | late
    offered |= {name for name, value in vars(mainspring).items() if not name.startswith("_") and _ours(value)}

    assert mainspring.__all__ == sorted(mainspring.__all__)
    assert set(mainspring.__all__) == offered


def _ours(value: object) -> bool:
    return not inspect.ismodule(value) and getattr(value, "__module__", "").startswith("mainspring")


def test_every_name_is_documented() -> None:
    for name in mainspring.__all__:
        documented = getattr(mainspring, name).__doc__

        assert documented, name
        assert not documented.startswith(f"{name}("), f"{name} has only what dataclass made up"


@pytest.mark.parametrize("name", mainspring.__all__)
def test_every_name_has_an_example_that_runs(name: str) -> None:
    documented = getattr(mainspring, name)
    module = sys.modules[documented.__name__ if inspect.ismodule(documented) else documented.__module__]

    examples = doctest.DocTestFinder(recurse=False).find(documented, name, module=module, globs=dict(vars(module)))
    results = [doctest.DocTestRunner(verbose=False).run(example) for example in examples]

    assert sum(result.attempted for result in results) >= 1, f"{name} has no example"
    assert sum(result.failed for result in results) == 0
