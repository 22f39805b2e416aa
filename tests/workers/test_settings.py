"""Settings: where they come from, which source wins, and how a bad one is told."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from policy.checks.fence_policies import NO_POLICIES, FencePolicies, PolicySource, ScopeCap, StormRule
from policy.checks.health_check import RetryBackoff, RetryRules
from policy.episode.events import When
from policy.episode.notices import Severity, Wording
from policy.history.offenders import OffenderAnswer, OffenderRules
from policy.scan.repeat_alarm import RepeatAlarm
from workers.configuration.clusters import ClusterSettings
from workers.configuration.process_settings import LogFormat
from workers.configuration.setting_sources import effective, passed_over
from workers.configuration.settings import load
from workers.errors import SettingsError

USERS = Path("home/.config/nodewarden/nodewarden.yaml")
"""Below the home of the user."""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_everything_has_a_default_that_works(clean: Path) -> None:
    settings = load()
    assert settings.temporal.address == ""
    assert settings.temporal.namespace == "default"
    assert settings.scan.cap == 1
    assert settings.sites == ("default",)
    assert settings.state == clean / "home" / ".local" / "state" / "nodewarden"


def test_the_environment_beats_the_file_key_by_key(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(clean / USERS, "scan: {cap: 2, wait: 30s}\nlog: {format: json}\n")
    monkeypatch.setenv("NODEWARDEN_SCAN__CAP", "5")
    settings = load()
    assert settings.scan.cap == 5
    assert settings.scan.wait == timedelta(seconds=30)
    assert settings.log.format is LogFormat.JSON


def test_further_fence_agents_are_listed_in_the_file_or_the_environment(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().worker.fence_agents == ()
    write(clean / USERS, "worker: {fence_agents: [fence_dummy]}\n")
    assert load().worker.fence_agents == ("fence_dummy",)
    monkeypatch.setenv("NODEWARDEN_WORKER__FENCE_AGENTS", "fence_ours,fence_dummy")
    assert load().worker.fence_agents == ("fence_ours", "fence_dummy")


def test_temporals_own_variables_are_understood_and_ours_beat_them(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "temporal.example:7233")
    monkeypatch.setenv("TEMPORAL_NAMESPACE", "theirs")
    monkeypatch.setenv("TEMPORAL_API_KEY", "key-material")
    monkeypatch.setenv("TEMPORAL_TLS", "true")
    monkeypatch.setenv("NODEWARDEN_TEMPORAL__NAMESPACE", "ours")
    settings = load()
    assert settings.temporal.address == "temporal.example:7233"
    assert settings.temporal.namespace == "ours"
    assert settings.temporal.tls is True
    assert settings.temporal.api_key is not None
    assert settings.temporal.api_key.get_secret_value() == "key-material"


@pytest.mark.parametrize(
    ("temporal", "refused"),
    [
        ({"address": "temporal.example:7233"}, True),
        ({"address": "10.0.0.7:7233", "tls": False, "api_key": "key"}, True),
        ({"address": "localhost.example:7233"}, True),
        ({"address": "temporal.example:7233", "insecure": True}, False),
        ({"address": "temporal.example:7233", "tls": True}, False),
        ({"address": "temporal.example:7233", "api_key": "key"}, False),
        ({"address": "temporal.example:7233", "tls_client_cert_file": "/c", "tls_client_key_file": "/k"}, False),
        ({"address": "127.0.0.9:7233"}, False),
        ({"address": "[::1]:7233"}, False),
        ({"address": "localhost:7233"}, False),
        ({"address": ""}, False),
    ],
)
def test_a_temporal_elsewhere_is_spoken_to_over_tls_unless_set_otherwise(
    clean: Path, temporal: dict[str, object], refused: bool
) -> None:
    """S42: whoever stands in between could speak in anybody's name."""
    write(clean / USERS, f"temporal: {json.dumps(temporal)}\n")
    if refused:
        with pytest.raises(SettingsError, match=r"temporal.*expected TLS .* or temporal\.insecure: true"):
            load()
    else:
        assert load().temporal.address == temporal["address"]


def test_a_key_never_shows_when_settings_are_printed(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S12."""
    monkeypatch.setenv("TEMPORAL_API_KEY", "key-material")
    assert "key-material" not in repr(load())


def test_the_node_we_run_on_comes_from_the_downward_api(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S16: without it a worker could not refuse its own node."""
    monkeypatch.setenv("NODE_NAME", "node-7")
    assert load().node_name == "node-7"


def test_the_file_is_found_by_argument_then_variable_then_at_home(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(clean / USERS, "scan: {cap: 2}")
    assert load().scan.cap == 2
    monkeypatch.setenv("NODEWARDEN_CONFIG", str(write(clean / "other" / "settings.yaml", "scan: {cap: 4}")))
    assert load().scan.cap == 4
    assert load(config=write(clean / "named.yaml", "scan: {cap: 5}")).scan.cap == 5


def test_a_file_of_the_current_folder_is_obeyed_only_where_it_is_named(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S51: it may be anybody's, as in /tmp or in an archive, and a cluster in it runs a program."""
    planted = write(clean / "nodewarden.yaml", "scan: {cap: 3}")
    assert load().scan.cap == 1
    assert passed_over(os.environ).startswith("./nodewarden.yaml is not read; name it (--config nodewarden.yaml)")
    assert (passed_over(os.environ, named=planted), load(config=planted).scan.cap) == ("", 3)
    monkeypatch.setenv("NODEWARDEN_CONFIG", "nodewarden.yaml")
    assert (passed_over(os.environ), load().scan.cap) == ("", 3)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(clean: Path, mode: int) -> None:
    """S51."""
    file = write(clean / USERS, "scan: {cap: 3}")
    file.chmod(mode)
    with pytest.raises(SettingsError, match=rf"only its owner may write: chmod go-w {file}"):
        load()
    file.chmod(0o644)
    assert load().scan.cap == 3


def test_a_file_of_another_user_is_refused_however_it_is_named(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S51. One of root is what a cluster mounts."""
    file = write(clean / "theirs.yaml", "scan: {cap: 3}")
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner:
        with pytest.raises(SettingsError, match=rf"{file}: expected a settings file of our own .*, got one of user {owner}"):
            load(config=file)
        return
    assert load(config=file).scan.cap == 3
    os.chown(file, 4711, -1)
    with pytest.raises(SettingsError, match=r"theirs\.yaml: .* of our own \(user 1\) or of root, got one of user 4711"):
        load(config=file)


def test_variables_that_kubernetes_injects_for_a_service_of_our_name_change_nothing(
    clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NODEWARDEN_PORT", "NODEWARDEN_SERVICE_HOST", "NODEWARDEN_METRICS_PORT", "NODEWARDEN_PORT_9464_TCP"):
        monkeypatch.setenv(name, "tcp://10.0.0.1:9464")
    assert load().metrics == ""


@pytest.mark.parametrize(
    ("text", "key", "expectation"),
    [
        ("scan: {cap: 0}", "scan.cap", "greater than or equal to 1, got 0"),
        ("scan: {cap: many}", "scan.cap", "expected a valid integer"),
        ("scan: {wait: 30}", "scan.wait", "expected a duration such as 30s, 5m or 1h30m, got 30"),
        ("scan: {wait: 1h}", "scan.wait", "expected between 1s and 5m"),
        ("scan: {wiat: 30s}", "scan.wiat", "unknown key; did you mean wait?"),
        ("colour: red", "colour", "unknown key; known here: clusters, docs_url, embedded, "),
        ("temporal: {address: localhost}", "temporal.address", "expected host:port such as localhost:7233, got 'localhost'"),
        ("temporal: {address: 'localhost:72333'}", "temporal.address", "expected host:port such as localhost:7233, got"),
        ("metrics: nine", "metrics", "expected host:port such as 127.0.0.1:9464, got 'nine'"),
        ("clusters: {a/b: {context: x}}", "clusters", "expected a cluster name of letters, digits"),
        ("clusters: {a: {in_cluster: true, context: x}}", "clusters.a", "give one of: kubeconfig/context, in_cluster, server"),
        ("clusters: {a: {server: api.example}}", "clusters.a", "expected a URL such as https://api.example.com:6443"),
        ("clusters: {a: {token_file: t}}", "clusters.a", "token_file and ca_file belong to server"),
        ("temporal: {tls_client_cert_file: c}", "temporal", "tls_client_cert_file and tls_client_key_file go together"),
        # No forced detachment is known more than five minutes beforehand (S36), and a warning is no nuisance.
        ("scan: {at_risk_margin: 6m}", "scan.at_risk_margin", "expected at"),
        ("scan: {at_risk_repeat: 10s}", "scan.at_risk_repeat", "expected at"),
        # Once is no repetition, and what is remembered travels in the scanner's state.
        ("repeat_alarm: {count: 1}", "repeat_alarm.count", "greater than or equal to 2"),
        ("repeat_alarm: {count: 3, window: 5s}", "repeat_alarm.window", "expected"),
        ("repeat_alarm: {window: 1000h}", "repeat_alarm.window", "expected"),
        ("offenders: {limit: 1}", "offenders.limit", "greater than or equal to 2"),
        ("offenders: {window: 3000h}", "offenders.window", "expected"),
        ("offenders: {answer: drop}", "offenders.answer", "'notify', 'ask' or 'keep'"),
        (
            "preservation: {pools: {a: {selector: {}, autoPreserveFailedMax: many}}}",
            "preservation.pools",
            "autoPreserveFailedMax",
        ),
        (
            "preservation: {pools: {a: {autoPreserveFailedMax: 1}}}",
            "preservation.pools",
            "expected a selector of Machines' or Nodes'",
        ),
        ("fencing: {storms: [{percentage: 0}]}", "fencing.storms", "greater than or equal to 1"),
        ("fencing: {storms: [{percentage: 101}]}", "fencing.storms", "less than or equal to 100"),
        ("fencing: {storms: [{scope: a rack, percentage: 40}]}", "fencing", "expected cluster, zone, pool or the key of a"),
        ("fencing: {cap_per_scope: {cluster: 2}}", "fencing", "the cap of the whole cluster is scan.cap"),
        ("fencing: {cap_per_scope: {rack: 0}}", "fencing", "greater than or equal to 1"),
        ("fencing: {max_attempts: 0}", "fencing.max_attempts", "greater than or equal to 1"),
        ("fencing: {quiet_time: 180}", "fencing.quiet_time", "expected a duration"),
        ("fencing: {pods_per_minute: 0}", "fencing.pods_per_minute", "greater than or equal to 1"),
        ("fencing: {storm: []}", "fencing.storm", "unknown key"),
        ("remediation: {max_retry: -1}", "remediation.max_retry", "greater than or equal to 0"),
        ("remediation: {retry_period: 9000h}", "remediation.retry_period", "expected at most a year"),
        ("remediation: {min_healthy_period: 60}", "remediation.min_healthy_period", "expected a duration"),
        ("remediation: {backoff: {type: linear}}", "remediation.backoff.type", "expected"),
        (
            "remediation: {backoff: {limit: 10m}}",
            "remediation.backoff",
            "expected none without a backoff; set type to exponential",
        ),
        (
            "remediation: {backoff: {type: exponential, limit: 0s}}",
            "remediation.backoff",
            "expected at least 1s and at most a year",
        ),
        ("remediation: {maxRetry: 3}", "remediation.maxRetry", "unknown key; did you mean max_retry?"),
        ("fence_check: {every: 1m}", "fence_check.every", "expected"),
        ("fence_check: {every: 169h}", "fence_check.every", "expected"),
        ("fence_check: {every: 60}", "fence_check.every", "expected a duration"),
        ("fence_check: {enabled: perhaps}", "fence_check.enabled", "expected"),
        (
            "notifications: [{severity: info}]",
            "notifications.0.url_file",
            "expected a value (file with addresses as Apprise has them, one a line; read at each sending), got none",
        ),
        ("notifications: [{url_file: /x, when: []}]", "notifications.0.when", "expected at least 1 entry, got none"),
    ],
)
def test_a_bad_value_is_told_with_key_file_and_expectation(clean: Path, text: str, key: str, expectation: str) -> None:
    """S7, S36."""
    file = write(clean / USERS, text)
    with pytest.raises(SettingsError) as refusal:
        load()
    message = str(refusal.value)
    assert message.startswith(key), message
    assert f" (in {file}): " in message
    assert expectation in message


def test_all_mistakes_are_told_at_once_and_each_with_its_source(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(clean / USERS, "log: {level: loud}")
    monkeypatch.setenv("NODEWARDEN_SCAN__CAP", "0")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "nowhere")
    with pytest.raises(SettingsError) as refusal:
        load()
    lines = str(refusal.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "temporal.address (from TEMPORAL_ADDRESS)",
        "scan.cap (from NODEWARDEN_SCAN__CAP)",
        f"log.level (in {clean / USERS})",
    ]


def test_a_refused_key_is_never_repeated_in_the_message(clean: Path) -> None:
    """S12."""
    write(clean / USERS, "temporal: {api_key: [key-material]}")
    with pytest.raises(SettingsError) as refusal:
        load()
    assert "temporal.api_key" in str(refusal.value)
    assert "key-material" not in str(refusal.value)


@pytest.mark.parametrize(
    ("text", "expectation"),
    [("- a\n- b", "expected a mapping of settings"), ("scan: [", "line 1: expected YAML"), ("1: 2", "expected a mapping")],
)
def test_a_file_that_is_no_settings_file_is_named(clean: Path, text: str, expectation: str) -> None:
    write(clean / USERS, text)
    with pytest.raises(SettingsError, match=r"nodewarden\.yaml") as refusal:
        load()
    assert expectation in str(refusal.value)


def test_a_named_file_that_is_not_there_is_an_error_and_no_default(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODEWARDEN_CONFIG", "nowhere.yaml")
    with pytest.raises(SettingsError, match=r"NODEWARDEN_CONFIG: expected a settings file, nowhere\.yaml does not exist"):
        load()


def test_configured_clusters_are_served_whatever_the_kubeconfig_says(clean: Path) -> None:
    write(clean / "home" / ".kube" / "config", "current-context: laptop")
    write(clean / USERS, "clusters: {prod: {context: prod-admin}, edge: {in_cluster: true}}")
    assert list(load().connections()) == ["prod", "edge"]


def test_without_clusters_the_current_context_is_the_cluster(clean: Path) -> None:
    write(clean / "home" / ".kube" / "config", "current-context: arn:aws:eks:eu-west-1:1:cluster/prod")
    assert load().connections() == {
        "arn-aws-eks-eu-west-1-1-cluster-prod": ClusterSettings(context="arn:aws:eks:eu-west-1:1:cluster/prod")
    }


def test_s9_two_contexts_are_not_one_cluster_by_what_a_name_leaves_out(clean: Path) -> None:
    """A name has 63 characters, and GKE's of one project and zone may differ after these."""
    one, other = (f"gke_{'a' * 30}_europe-west1-b_{'c' * 20}-{each}" for each in ("east", "west"))
    listed = f"contexts: [{{name: {one}}}, {{name: {other}}}]"
    write(clean / "home" / ".kube" / "config", f"current-context: {one}\n{listed}")
    with pytest.raises(SettingsError, match=r"would both be called gke_a+_europe-west1-b_c+; give each a name in `clusters`"):
        load().connections()


def test_the_first_kubeconfig_that_names_a_context_wins(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = write(clean / "a", "clusters: []"), write(clean / "b", "current-context: second")
    monkeypatch.setenv("KUBECONFIG", f"{clean / 'missing'}:{first}:{second}")
    assert list(load().connections()) == ["second"]


def test_in_a_pod_without_kubeconfig_the_own_cluster_is_meant(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert load().connections() == {"in-cluster": ClusterSettings(in_cluster=True)}


def test_a_kubeconfig_that_cannot_be_read_is_named(clean: Path) -> None:
    write(clean / "home" / ".kube" / "config", "{")
    with pytest.raises(SettingsError, match=r"\.kube/config: expected a readable kubeconfig"):
        load().connections()


def test_an_alarm_about_repetitions_and_the_life_of_a_node_fence_can_be_set(clean: Path) -> None:
    assert load().repeat_alarm.alarm() == RepeatAlarm()
    text = "repeat_alarm: {count: 2, window: 48h}\nnode_fence: {kept_for: 10m}\n"
    settings = load(config=write(clean / USERS, text))
    assert settings.repeat_alarm.alarm() == RepeatAlarm(count=2, window=timedelta(hours=48))
    assert settings.node_fence.kept_for == timedelta(minutes=10)


@pytest.mark.parametrize("answer", list(OffenderAnswer))
def test_what_is_done_about_offenders_can_be_set(clean: Path, answer: OffenderAnswer) -> None:
    assert load().offenders.rules() == OffenderRules(limit=3, window=timedelta(days=28), answer=OffenderAnswer.NOTIFY)
    text = f"offenders: {{limit: 5, window: 720h, answer: {answer.value}}}\n"
    rules = OffenderRules(limit=5, window=timedelta(hours=720), answer=answer)
    assert load(config=write(clean / USERS, text)).offenders.rules() == rules


def test_fence_policies_are_typed_from_their_section(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().policy_source() == PolicySource(namespace="nodewarden", policies=NO_POLICIES)
    write(
        clean / USERS,
        """
        fence_namespace: fencing
        fencing:
          storms: [{scope: rack, percentage: 40}, {percentage: 30}]
          cap_per_scope: {rack: 1}
          quiet_time: 3m
          max_attempts: 4
          skip_if_host_lost_storage: true
          storage_events: [IOError, multipathd/PathsLost]
          storage_event_age: 2m
          pods_per_minute: 60
        """,
    )
    monkeypatch.setenv("NODEWARDEN_FENCING__ENABLED", "false")
    assert load().policy_source() == PolicySource(
        namespace="fencing",
        policies=FencePolicies(
            storms=(
                StormRule(name="fencing.storms[0]", percentage=40, scope="rack"),
                StormRule(name="fencing.storms[1]", percentage=30),
            ),
            caps=(ScopeCap(scope="rack", cap=1),),
            quiet_time=timedelta(minutes=3),
            maximum_attempts=4,
            skip_lost_storage=True,
            storage_events=("IOError", "multipathd/PathsLost"),
            storage_event_age=timedelta(minutes=2),
            pods_per_minute=60,
            switched_off=("the setting fencing.enabled is false",),
        ),
    )


def test_retries_of_remediations_are_typed_from_their_section(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().remediation.retries() == RetryRules(), "as Cluster API does it"
    text = "remediation: {max_retry: 5, retry_period: 5m, min_healthy_period: 2h, backoff: {type: exponential}}\n"
    write(clean / USERS, text)
    rules = RetryRules(
        max_retry=5, retry_period=timedelta(minutes=5), min_healthy_period=timedelta(hours=2), backoff=RetryBackoff()
    )
    assert load().remediation.retries() == rules
    monkeypatch.setenv("NODEWARDEN_REMEDIATION__BACKOFF__LIMIT", "30m")
    assert load().remediation.retries() == replace(rules, backoff=RetryBackoff(limit=timedelta(minutes=30)))


def test_how_often_fence_devices_are_checked(clean: Path) -> None:
    assert load().fence_check.interval() == timedelta(hours=1)
    text = "fence_check: {every: 6h}\n"
    assert load(config=write(clean / USERS, text)).fence_check.interval() == timedelta(hours=6)
    assert load(fence_check={"enabled": False}).fence_check.interval() is None


def test_who_is_told_what_and_in_which_words(clean: Path) -> None:
    text = """notifications:
- url_file: /etc/chat
  severity: warning
  nodes: [gpu-*]
  checks: [NodeHealthCheck/gpu]
  labels: {matchLabels: {zone: a}}
  after: 1h
  texts: {needs-human: {title: "{node} ({severity})"}}
"""
    (entry,) = load(config=write(clean / USERS, text)).notifications
    rule = entry.rule()
    assert (rule.severity, rule.nodes, rule.after) == (Severity.WARNING, ("gpu-*",), timedelta(hours=1))
    assert (rule.checks, rule.labels.matches({"zone": "a"}), rule.labels.matches({"zone": "b"})) == (
        ("NodeHealthCheck/gpu",),
        True,
        False,
    )
    assert rule.wordings == {When.NEEDS_HUMAN: Wording(title="{node} ({severity})")}


def test_words_with_a_field_that_there_is_not_name_the_setting(clean: Path) -> None:
    """When the worker starts, not when somebody would be told."""
    text = "notifications: [{url_file: /etc/chat, texts: {ended: {text: 'see {runbook}'}}}]"
    with pytest.raises(SettingsError, match=r"texts\.ended\.text .*expected fields of .*, got \{runbook\}"):
        load(config=write(clean / USERS, text))


def test_the_settings_that_count_say_where_each_comes_from_and_hide_secrets(clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S12: and a part of the file's section that the file does not set is a default."""
    file = clean / "nodewarden.yaml"
    file.write_text("scan: {cap: 3}\nclusters: {prod: {context: x}}\nfencing: {cap_per_scope: {zone: 1}}\n")
    file.chmod(0o600)
    monkeypatch.setenv("TEMPORAL_API_KEY", "hush")
    monkeypatch.setenv("NODEWARDEN_SCAN__WAIT", "2m")
    monkeypatch.setenv("NODE_NAME", "node-1")
    monkeypatch.setenv("NODEWARDEN_LOG", "")
    found = effective(load(config=file), file=file)
    shown = {each.key: (each.value, each.source) for each in found}
    assert shown["scan.cap"] == (3, str(file))
    assert shown["scan.wait"] == ("2m", "NODEWARDEN_SCAN__WAIT")
    assert shown["scan.takeover"] == (False, "default")
    assert shown["clusters.prod.context"] == ("x", str(file))
    assert shown["clusters.prod.server"] == ("", "default")
    assert shown["fencing.cap_per_scope.zone"][1] == str(file)
    assert shown["node_name"] == ("node-1", "NODE_NAME")
    assert shown["temporal.api_key"][1] == "TEMPORAL_API_KEY"
    assert shown["log.format"][1] == "default"
    assert "hush" not in str(found)
