"""Who has been taken over, what they try, and whether it comes off: the table of docs/security.md is made from this one.

A cell is a no unless it says what to do about it. What shows it is a test elsewhere, by name, or `test_matrix.py` plays it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Principal(StrEnum):
    """Each as docs/security.md calls it."""

    TENANT = "tenant who creates FenceAgentsRemediations in a namespace of their own"
    MACHINE_AUTHOR = "tenant who creates Machines and MachineHealthChecks in a namespace of their own"
    TEMPLATE_AUTHOR = "author of FencingTemplates in a namespace of their own"
    CONFIGMAP_AUTHOR = "author of ConfigMaps in `fence_namespace`"
    KUBELET = "kubelet of a node without a worker of ours"
    TEMPORAL_CLIENT = "client of Temporal without keys"
    POLLER = "poller of our task queues without keys"
    VIEWER = "person with `nodewarden-viewer`"
    LOCAL_USER = "other user of the host where `nodewarden up` or `ui` runs"
    WEB_PAGE = "web page in the operator's browser, on Linux"
    BMC = "BMC of one machine"
    RECEIVER = "receiver of notifications"
    OTHER_CLUSTER = "API server of another cluster that the worker serves"


class Act(StrEnum):
    """Each as the head of a column."""

    POWER_OFF = "power off a healthy node"
    FREE = "free pods of a running machine"
    READ_SECRET = "read a Secret"
    SEND_CREDENTIAL = "send a credential elsewhere"
    UNTAINT = "remove a foreign taint or cordon"
    IMPERSONATE = "speak in another person's name"
    SILENCE = "silence us"
    FLOOD = "flood us"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """shown_by: names of tests, below tests/; empty: `test_matrix.py` plays it. yes: what happens and what to do about it, empty
    for a no. closed_by: the setting, with its value, that makes a no of it; `nodewarden doctor` names it where it is not set.
    own: it befalls the machine that the attacker has in hand anyway."""

    shown_by: tuple[str, ...] = ()
    yes: str = ""
    closed_by: str = ""
    own: bool = False


PLAYED = Cell()
ADMINISTRATORS = frozenset({Principal.CONFIGMAP_AUTHOR, Principal.OTHER_CLUSTER})
"""They decide on machines by what they may write; docs/security.md lists them among the administrators."""

HOSTS = "worker.credential_hosts"


def shown(*tests: str, **more: str | bool) -> Cell:
    """A cell that tests elsewhere show."""
    return Cell(shown_by=tests, **more)  # type: ignore[arg-type]


FORGED = "security/test_forged_requests.py::"
PROOFS = "security/test_forged_proofs.py::test_s1_a_proof_that_a_caller_has_made_up_frees_nothing"
CANARY = "system/test_canary.py::test_a_secret_in_a_history_or_a_memo_is_found_in_the_servers_database"
VERIFIED = "security/test_words_of_people.py::test_an_unattested_command_is_refused_to_the_person"
ACKNOWLEDGED = "cluster/acts/test_verified_words.py::test_nor_is_a_word_for_off_a_proof"
WISHED = "cluster/acts/test_verified_words.py::test_a_last_look_takes_no_unverified_wish_for_a_persons"
OVERRIDDEN = (
    "cluster/acts/test_verified_words.py::test_a_permit_past_a_circuit_breaker_licenses_nothing_without_the_sealed_override"
)
MADE_UP_MARK = "security/test_matrix.py::test_s28_a_mark_that_a_client_of_temporal_has_made_up_takes_nothing_of_others_away"
LOCAL_PAGE = "security/test_page.py::test_another_user_of_the_host_says_and_reads_nothing"
ANY_HOST = "workers/test_credentials.py::test_a_secret_without_a_host_goes_where_the_setting_says"
SEALED = "power/test_licences.py::test_every_device_of_a_plan_is_sealed_and_no_other_is_believed"
TOKENS = "security/test_token_of_another_cluster.py::"
LOOKING = "security/test_page.py::"
NOTIFYING = "test_notifying.py::"
TWINS = "policy/checks/test_inventory.py::test_each_of_several_nodes_with_one_identity_is_contested_until_it_is_the_last"
HIS_DEVICE = "security/test_duplicated_identity.py::test_the_bmc_of_another_machine_at_the_old_address_is_not_commanded"
STRANGE_DEVICE = "fuzz/test_devices.py::test_whatever_a_redfish_service_says"
ANOTHER_SITE = "starter/test_web_acts.py::test_another_page_says_nothing"
BY_HTTP = "workers/test_embedded.py::test_no_web_page_starts_or_ends_a_workflow_over_http"
ANY_ANSWER = "fuzz/test_api_answers.py::test_whatever_a_server_says_is_a_value_or_an_error_of_ours"
ENDLESS = "cluster/test_connection.py::test_s41_an_answer_without_end_is_not_held_in_memory"
A_FORM = "starter/test_web_acts.py::test_a_form_of_another_page_and_a_link_say_nothing"

_BY_FRONTEND = (
    "It ends the scanner, takes tasks and does nothing, or starts workflows without end. Let only workers and operators reach"
    " Temporal's frontend; the alerts `NodewardenNotScanning` and `NodewardenQueueUnserved` report it."
)
_BY_POLLER = (
    "It answers for the worker that verifies people's words. Words without a seal (`hold`, `resume`, `abort`, `return-path`,"
    " `preserve`, `pause`) are then obeyed in any name; `fence`, `remediate` and `ack-off` are not. Let only workers poll."
)
_UP = (
    "Every user of the host reaches the Temporal of `nodewarden up`, and is a client of Temporal."
    " Use a computer that only one person uses, or a Temporal with TLS."
)
_DECIDES = "These ConfigMaps say which device belongs to a node. Give write access to administrators only."

P, A = Principal, Act
CELLS: dict[tuple[Principal, Act], Cell] = {
    **{(P.TENANT, act): PLAYED for act in Act},
    **{(P.MACHINE_AUTHOR, act): PLAYED for act in Act},
    **{(P.TEMPLATE_AUTHOR, act): PLAYED for act in Act},
    (P.TEMPLATE_AUTHOR, A.SEND_CREDENTIAL): shown(
        "security/test_secret_of_a_stranger.py::test_a_template_in_an_unnamed_namespace_is_not_followed_and_stops_no_other"
    ),
    **{(P.CONFIGMAP_AUTHOR, act): PLAYED for act in (A.READ_SECRET, A.UNTAINT, A.IMPERSONATE)},
    (P.CONFIGMAP_AUTHOR, A.POWER_OFF): Cell(yes=_DECIDES),
    (P.CONFIGMAP_AUTHOR, A.FREE): Cell(yes=_DECIDES),
    (P.CONFIGMAP_AUTHOR, A.SEND_CREDENTIAL): shown(
        ANY_HOST,
        "workers/test_credentials.py::test_a_device_elsewhere_is_refused_by_name_before_any_value_is_used",
        yes="If a Secret names no hosts, and no check of devices has found it yet. Name the hosts on each Secret"
        " (`nodewarden.io/hosts`) or in `worker.credential_hosts`.",
        closed_by=HOSTS,
    ),
    (P.CONFIGMAP_AUTHOR, A.SILENCE): Cell(
        yes="`fence-cluster-config` can switch fencing off. `nodewarden status` says so first."
    ),
    (P.CONFIGMAP_AUTHOR, A.FLOOD): shown(
        "fuzz/test_objects.py::test_a_strange_fence_configuration_is_a_plan_or_is_refused_by_its_name_and_field"
    ),
    (P.KUBELET, A.POWER_OFF): shown(
        "security/test_duplicated_identity.py::test_nodes_that_copy_healthy_ones_identity_are_told_of_and_nothing_is_switched_off",
    ),
    (P.KUBELET, A.FREE): Cell(own=True, yes="It deletes the pods of its own node, as every kubelet may."),
    (P.KUBELET, A.READ_SECRET): PLAYED,
    (P.KUBELET, A.SEND_CREDENTIAL): shown(
        "security/test_options_as_values.py::test_a_provider_id_that_a_kubelet_chose_is_no_option_of_ssh",
        ANY_HOST,
        "workers/test_credentials.py::test_a_device_elsewhere_is_refused_by_name_before_any_value_is_used",
        yes="If a template takes a device's address from a label or the provider ID, which a kubelet chooses. Write addresses"
        " by node name, or name the hosts (`nodewarden.io/hosts`, `worker.credential_hosts`).",
        closed_by=HOSTS,
    ),
    (P.KUBELET, A.UNTAINT): PLAYED,
    (P.KUBELET, A.IMPERSONATE): PLAYED,
    (P.KUBELET, A.SILENCE): shown(
        TWINS,
        yes="It prevents the fencing of its own node, by the label that excludes it or by reporting it well; `status` shows"
        " the first. It prevents that of another node as long as it reports that one's system UUID or boot id (S39): `status`"
        " and an Event name both; delete the one that lies. In each group and check of which it takes the labels"
        " it counts as one more sick node, and with `storage_events` it writes Events about any node. A static pod of its own"
        " with the labels of etcd's counts as a voter that is unwell, which may keep members of the control plane from their"
        " repair (S15); the refusal names its node.",
    ),
    (P.KUBELET, A.FLOOD): shown(
        "fuzz/test_objects.py::test_whatever_one_object_holds_the_others_of_its_kind_are_there",
        "fuzz/test_long_words.py::test_s41_no_long_word_of_one_object_makes_a_report_long",
        "fuzz/test_large_objects.py::test_s41_of_a_pod_little_is_held",
    ),
    (P.TEMPORAL_CLIENT, A.POWER_OFF): shown(
        f"{FORGED}test_a_command_that_no_look_has_licensed_is_refused",
        f"{FORGED}test_a_look_of_his_own_licenses_nothing",
        VERIFIED,
        OVERRIDDEN,
    ),
    (P.TEMPORAL_CLIENT, A.FREE): shown(PROOFS, ACKNOWLEDGED),
    (P.TEMPORAL_CLIENT, A.READ_SECRET): shown(CANARY),
    (P.TEMPORAL_CLIENT, A.SEND_CREDENTIAL): shown(f"{FORGED}test_no_credential_goes_to_a_device_of_his_own"),
    (P.TEMPORAL_CLIENT, A.UNTAINT): shown(MADE_UP_MARK),
    (P.TEMPORAL_CLIENT, A.IMPERSONATE): shown(VERIFIED),
    (P.TEMPORAL_CLIENT, A.SILENCE): Cell(yes=_BY_FRONTEND),
    (P.TEMPORAL_CLIENT, A.FLOOD): Cell(yes=_BY_FRONTEND),
    (P.POLLER, A.POWER_OFF): shown("power/test_licences.py::test_another_deployments_licence_is_none", WISHED),
    (P.POLLER, A.FREE): shown(PROOFS, ACKNOWLEDGED),
    (P.POLLER, A.READ_SECRET): shown(CANARY),
    (P.POLLER, A.SEND_CREDENTIAL): shown(SEALED),
    (P.POLLER, A.UNTAINT): shown(MADE_UP_MARK),
    (P.POLLER, A.IMPERSONATE): Cell(yes=_BY_POLLER),
    (P.POLLER, A.SILENCE): Cell(yes=_BY_FRONTEND),
    (P.POLLER, A.FLOOD): Cell(yes=_BY_FRONTEND),
    **{(P.VIEWER, act): PLAYED for act in (A.FREE, A.READ_SECRET, A.SEND_CREDENTIAL, A.UNTAINT, A.IMPERSONATE)},
    (P.VIEWER, A.POWER_OFF): shown(f"{LOOKING}test_a_reader_without_the_right_to_act_commands_nothing"),
    (P.VIEWER, A.SILENCE): shown(f"{LOOKING}test_a_reader_without_the_right_to_act_commands_nothing"),
    (P.VIEWER, A.FLOOD): shown(
        f"{TOKENS}test_invented_tokens_cost_a_cluster_no_more_than_a_few_reviews",
        "starter/test_web_acts.py::test_a_body_that_is_too_long_is_not_held_in_memory",
        "starter/test_web_acts.py::test_looking_reads_the_devices_of_a_node_once_however_many_look",
        "starter/test_web_whatif.py::test_what_can_not_be_evaluated_is_refused_with_its_place",
    ),
    (P.LOCAL_USER, A.POWER_OFF): shown(LOCAL_PAGE),
    (P.LOCAL_USER, A.FREE): shown(PROOFS, ACKNOWLEDGED),
    (P.LOCAL_USER, A.READ_SECRET): shown(
        "workers/test_embedded.py::test_no_other_user_looks_into_its_database",
        "workers/test_keeping_secrets.py::test_another_process_of_the_same_user_does_not_look_into_it",
    ),
    (P.LOCAL_USER, A.SEND_CREDENTIAL): shown(SEALED),
    (P.LOCAL_USER, A.UNTAINT): shown(MADE_UP_MARK),
    (P.LOCAL_USER, A.IMPERSONATE): shown(LOCAL_PAGE),
    (P.LOCAL_USER, A.SILENCE): Cell(yes=_UP),
    (P.LOCAL_USER, A.FLOOD): Cell(yes=_UP),
    **{(P.WEB_PAGE, act): shown(ANOTHER_SITE, A_FORM, BY_HTTP) for act in Act},
    (P.BMC, A.POWER_OFF): shown(HIS_DEVICE),
    (P.BMC, A.FREE): shown(
        "security/test_forged_proofs.py::test_s2_what_was_truly_read_frees",
        own=True,
        yes="If it lies, its own machine is freed while it runs. Give the node a second device: both have to agree (S4).",
    ),
    (P.BMC, A.READ_SECRET): shown("power/redfish/test_answers.py::test_credentials_and_commands_go_to_no_other_host"),
    (P.BMC, A.SEND_CREDENTIAL): shown("power/redfish/test_answers.py::test_credentials_and_commands_go_to_no_other_host"),
    (P.BMC, A.UNTAINT): shown(STRANGE_DEVICE),
    (P.BMC, A.IMPERSONATE): shown(STRANGE_DEVICE),
    (P.BMC, A.SILENCE): Cell(
        own=True, yes="Nothing is proven about its own machine, and a person is asked. Other devices have slots of their own."
    ),
    (P.BMC, A.FLOOD): shown(STRANGE_DEVICE),
    **{(P.RECEIVER, act): shown(f"{NOTIFYING}test_a_service_that_fails_is_tried_again_and_its_token_is_nowhere") for act in Act},
    (P.RECEIVER, A.SILENCE): shown(
        f"{NOTIFYING}test_publishing_never_waits", f"{NOTIFYING}test_a_receiver_that_does_not_take_it_leaves_it_to_the_others"
    ),
    (P.OTHER_CLUSTER, A.POWER_OFF): shown(
        "workers/test_credentials.py::test_a_secret_of_another_cluster_under_the_same_name_is_not_read",
        "policy/fence/test_devices.py::test_without_any_configuration_the_instance_of_the_provider_id_is_restarted",
        yes="With the worker's own cloud identity: its Nodes may name any instance that this identity switches. And with the"
        " worker's rights in a management cluster that it shares: its Nodes may name any Machine there."
        " For clusters that do not trust each other, use separate workers with identities of their own.",
    ),
    (P.OTHER_CLUSTER, A.FREE): shown(
        "workers/test_credentials.py::test_a_secret_of_another_cluster_under_the_same_name_is_not_read"
    ),
    (P.OTHER_CLUSTER, A.READ_SECRET): shown(
        "workers/test_credentials.py::test_a_secret_of_another_cluster_under_the_same_name_is_not_read"
    ),
    (P.OTHER_CLUSTER, A.SEND_CREDENTIAL): shown(
        "workers/test_credentials.py::test_a_secret_of_another_cluster_under_the_same_name_is_not_read"
    ),
    (P.OTHER_CLUSTER, A.UNTAINT): shown(
        "workers/test_credentials.py::test_a_secret_of_another_cluster_under_the_same_name_is_not_read"
    ),
    (P.OTHER_CLUSTER, A.IMPERSONATE): shown(f"{TOKENS}test_a_programs_token_goes_to_the_cluster_that_it_asks_about"),
    **{(P.OTHER_CLUSTER, act): shown(ANY_ANSWER, ENDLESS) for act in (A.SILENCE, A.FLOOD)},
}
