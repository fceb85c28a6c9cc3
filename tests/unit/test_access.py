"""Who may do what."""

from itertools import pairwise

import pytest

from mainspring.domain.access import CLUSTER_SCOPES, SCOPES, Principal, Role, Scope, read_role
from mainspring.domain.errors import Forbidden, InvalidRequest, RateLimited, Unauthenticated, Unavailable

ONE_TENANT = {role: Principal(subject="x", tenant="shop", role=role) for role in Role}
WHOLE_CLUSTER = {role: Principal(subject="x", tenant="default", role=role, cluster=True) for role in Role}

LEAST = {  # who may at least, by scope: written out once more, so that a change of the table is a decision
    Scope.JOBS_READ: Role.OBSERVER,
    Scope.RUNS_READ: Role.OBSERVER,
    Scope.LETTERS_READ: Role.OBSERVER,
    Scope.CLUSTER_READ: Role.OBSERVER,
    Scope.TENANTS_READ: Role.OBSERVER,
    Scope.PAYLOADS_READ: Role.VIEWER,
    Scope.JOBS_OPERATE: Role.OPERATOR,
    Scope.RUNS_OPERATE: Role.OPERATOR,
    Scope.LETTERS_OPERATE: Role.OPERATOR,
    Scope.CHANGES_READ: Role.OPERATOR,
    Scope.CLUSTER_WRITE: Role.OPERATOR,
    Scope.CLUSTER_CHANGES: Role.OPERATOR,
    Scope.JOBS_WRITE: Role.EDITOR,
    Scope.KEYS_WRITE: Role.ADMIN,
    Scope.SECRETS_WRITE: Role.ADMIN,
    Scope.TENANTS_WRITE: Role.ADMIN,
}


def test_every_scope_is_somebodys() -> None:
    assert set(LEAST) == set(Scope)
    assert SCOPES[Role.ADMIN] == set(Scope)


@pytest.mark.parametrize("scope", Scope)
def test_from_which_role_on_a_scope_is_open(scope: Scope) -> None:
    roles = list(Role)
    expected = {role: roles.index(role) >= roles.index(LEAST[scope]) for role in roles}

    assert {role: WHOLE_CLUSTER[role].may(scope) for role in roles} == expected
    inside = expected if scope not in CLUSTER_SCOPES else dict.fromkeys(roles, False)
    assert {role: ONE_TENANT[role].may(scope) for role in roles} == inside


def test_each_role_may_more_than_the_one_before_it() -> None:
    assert all(SCOPES[less] < SCOPES[more] for less, more in pairwise(Role))


def test_an_observer_is_a_viewer_who_sees_no_payloads() -> None:
    assert SCOPES[Role.VIEWER] - SCOPES[Role.OBSERVER] == {Scope.PAYLOADS_READ}
    assert [role for role in Role if not ONE_TENANT[role].sees_payloads] == [Role.OBSERVER]


def test_an_admin_of_a_tenant_is_nobody_in_the_cluster() -> None:
    admin = ONE_TENANT[Role.ADMIN]

    assert not any(admin.may(scope) for scope in CLUSTER_SCOPES)
    with pytest.raises(Forbidden, match="it takes the role admin or more of the whole cluster"):
        admin.require(Scope.TENANTS_WRITE)


def test_a_refusal_says_who_may() -> None:
    ONE_TENANT[Role.EDITOR].require(Scope.JOBS_WRITE)

    with pytest.raises(Forbidden) as refused:
        ONE_TENANT[Role.VIEWER].require(Scope.JOBS_WRITE)

    assert str(refused.value) == (
        'jobs:write is not open to the role viewer of tenant "shop"; it takes the role editor or more'
    )
    assert (refused.value.code, refused.value.exit_status) == ("forbidden", 5)


def test_only_the_cluster_acts_for_others() -> None:
    inside, whole = ONE_TENANT[Role.ADMIN], WHOLE_CLUSTER[Role.VIEWER]

    assert inside.acting_for(None) is inside
    assert inside.acting_for("shop") is inside
    assert whole.acting_for("shop") == Principal(subject="x", tenant="shop", role=Role.VIEWER, cluster=True)
    for name in ("default", "no-such-tenant", ""):
        with pytest.raises(Forbidden) as refused:
            inside.acting_for(name)
        assert name == "" or name not in str(refused.value)  # the same answer, whether it exists or not


@pytest.mark.parametrize("text", ["Admin", "admin ", "root", "", None, 1, True, ["admin"], {"admin": 1}])
def test_what_is_no_role(text: object) -> None:
    with pytest.raises(InvalidRequest, match="use observer, viewer, operator, editor, admin"):
        read_role(text)


def test_the_name_of_a_role_is_read() -> None:
    assert [read_role(role.value) for role in Role] == list(Role)


def test_what_the_header_of_a_refusal_says() -> None:
    assert Unauthenticated("who are you?").challenge == 'Bearer realm="mainspring"'
    assert Unauthenticated("x", reason="expired").challenge.endswith('error_description="expired"')
    assert Unauthenticated("x").exit_status == 5
    assert issubclass(RateLimited, Unavailable)
    assert (RateLimited.code, RateLimited.exit_status) == ("rate_limited", 6)
