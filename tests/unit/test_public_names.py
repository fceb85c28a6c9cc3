"""What ``import mainspring`` offers is sorted, complete and documented."""

import inspect

import mainspring


def test_the_list_of_names_is_sorted_and_complete() -> None:
    offered = {
        name for name, value in vars(mainspring).items() if not name.startswith("_") and not inspect.ismodule(value)
    }

    assert mainspring.__all__ == sorted(mainspring.__all__)
    assert set(mainspring.__all__) == offered


def test_every_name_is_documented() -> None:
    for name in mainspring.__all__:
        documented = getattr(mainspring, name).__doc__

        assert documented, name
        assert not documented.startswith(f"{name}("), f"{name} has only what dataclass made up"
