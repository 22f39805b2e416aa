"""Guards, each with the play that fails without it: what the players and their referees hold, as a table.

    python -m tests.workflows.guards                       # looks for the seed of each anew where that has changed
    python -m tests.workflows.guards claim --plays 2000    # of guards whose names say that; so many plays for each
    python -m tests.workflows.guards --table               # the table of docs/adversary.md

A guard is taken out in memory (`taken_out.py`), for as long as a play takes. `test_guards.py` plays each seed without its guard,
so that the table is so; a new move makes other plays of most seeds, and then this command is needed.
"""

from __future__ import annotations

import argparse
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import NamedTuple

from tests.workflows.attempts import START
from tests.workflows.faults import Fault, PlacedFault
from tests.workflows.fleet_moves import KNOWN, FleetPlay
from tests.workflows.pair import PairPlay
from tests.workflows.plans import draw_plan
from tests.workflows.plays import Move
from tests.workflows.preservation_moves import LATER, LATEST, NODES, KeptPlay
from tests.workflows.scenario_run import Play, Scenario, arranged
from tests.workflows.taken_out import changed


class Guard(NamedTuple):
    """was, instead: of the file's text, with and without it. seed: of a play that fails then."""

    what: str
    rule: str
    seed: int
    file: str
    was: str
    instead: str

    def noticed(self, play: Callable[[int], list[str]], seed: int | None = None) -> list[str]:
        """What a play without it breaks: that of its seed, or another one."""
        with changed(self.file, self.was, self.instead):
            return play(self.seed if seed is None else seed)


def episode(seed: int) -> list[str]:
    """As `test_fencing_properties.py` plays it: every other seed in a new history after each rest."""
    return Play(Scenario.of(seed), rolls=seed % 2 == 0).run()


def vetoed_episode(seed: int) -> list[str]:
    """One that ends by a veto, and that a person holds or aborts while it takes back what it did."""
    draw = Random(seed)
    veto = PlacedFault(method=draw.choice(("mark_unschedulable", "read_power")), number=1, faults=((Fault.VETO, 0.0),))
    word = PlacedFault(method="mark_schedulable", number=1, faults=((draw.choice((Fault.HOLD, Fault.ABORT)), 0.0),))
    drawn = arranged(draw_plan(draw), veto, word, seed=seed, permitted=draw.random() < 0.7)
    return Play(drawn, rolls=seed % 2 == 0).run()


def ladder(seed: int) -> list[str]:
    """One whose steps have to wait, in a world that works else: also for workers, or for Temporal, that are away."""
    return Play(Scenario.climbing(seed), rolls=seed % 2 == 0).run()


def ladder_of_another_failure(seed: int) -> list[str]:
    """One that finds the object which a terminated predecessor has made for an earlier failure."""
    drawn = Scenario.climbing(seed)
    need, left = replace(drawn.need, since=START - timedelta(minutes=1)), timedelta(minutes=Random(seed).choice((2, 20, 600)))
    return Play(replace(drawn, need=need, left=left, earlier=None), rolls=seed % 2 == 0).run()


def preservation(seed: int) -> list[str]:
    """As `test_preservation_properties.py` plays it."""
    return KeptPlay(seed).run()


def later_preservation(seed: int) -> list[str]:
    """The same with the moves that were found later."""
    return KeptPlay(seed, alphabet=LATER).run()


def latest_preservation(seed: int) -> list[str]:
    """The same with those that were found after these."""
    return KeptPlay(seed, alphabet=LATEST).run()


def nodes_of_kept(seed: int) -> list[str]:
    """One of which the Node is deleted alone, or made anew."""
    return KeptPlay(seed, alphabet=NODES).run()


def kept_by_its_pool(seed: int) -> list[str]:
    """One that only a health check calls failed, and of which the Node is deleted."""
    return KeptPlay(seed, named_moves(seed, "scanner_tells@70 node_is_deleted@600"), alphabet=NODES).run()


STORIES = (
    *KNOWN,
    "is_reset@12 sets_mode@2 unsets_mode@0",
    "sickens_some@12 is_reset@0 sickens@12",
    "pauses@0 unpauses@31",
    "sickens@0 sickens_some@5 sets_mode@0 sickens@31 sickens_some@5 aborts@2",
    "sets_mode@0 sickens@31 is_reset@2 sets_mode@0",
)
"""What breaks a scanner without one of its guards: the fewest moves of longer plays, too."""


def scanner(seed: int) -> list[str]:
    """One to which a story happens and nothing else, each in its turn: a few moves cost less than a whole play."""
    return FleetPlay(seed, named_moves(seed, STORIES[seed % len(STORIES)])).run()


def deceived_scanner(seed: int) -> list[str]:
    """One that a stranger tells of permits that were given back."""
    return FleetPlay(seed, with_moves(seed, "sickens_some forges_release", most=6)).run()


def limited_scanner(seed: int) -> list[str]:
    """One under fence policies with caps."""
    return FleetPlay(seed, with_moves(seed, "sickens_some follows_policies", most=4)).run()


def renamed_nodes(seed: int) -> list[str]:
    """One of which nodes register anew under other names."""
    return FleetPlay(seed, with_moves(seed, "sickens_some is_renamed", most=4)).run()


def restarted_scanner(seed: int) -> list[str]:
    """One that is stopped and begun anew a minute after a person has aborted an episode, while the last one gives no answer."""
    play = FleetPlay(seed, named_moves(seed, "machine_fails@12 aborts@75 stops_scanner@5 starts_scanner@31"))
    play.fleet.faults["former_spells"] = deque(["fails"] * 6)
    return play.run()


def stopped_scanner(seed: int) -> list[str]:
    """One that is reset in the moment in which a person stops it."""
    return FleetPlay(seed, named_moves(seed, "sickens@12 stops_scanner@0.1 is_reset@0 is_reset@31")).run()


def moved_nodes(seed: int) -> list[str]:
    """One of which nodes get the label of another rack, and another check, while their episodes are open."""
    moves = "writes_check@2 sickens_some@12 changes_rack@0 changes_rack@0 changes_rack@5"
    return FleetPlay(seed, named_moves(seed, moves)).run()


def pair(seed: int) -> list[str]:
    """As `test_pair_properties.py` plays it: the scanner and its episodes."""
    return PairPlay(seed).run()


def control_plane(seed: int) -> list[str]:
    """The same with three members of a control plane, of which the scanner sees late that they fall silent."""
    play = PairPlay(seed, with_moves(seed, "watch_is_behind sickens sickens", most=4, of=PairPlay))
    play.fleet.join(3)
    return play.run()


def with_moves(seed: int, added: str, *, most: int, of: type[FleetPlay] = FleetPlay) -> list[Move]:
    """Those of a scanner's play, with others that are not among the drawn ones, which would make other plays of all seeds."""
    draw, moves = Random(seed), of(seed).moves
    for _ in range(draw.randint(1, most)):
        place = draw.randint(1, len(moves))
        moves[place:place] = [Move(each, draw.getrandbits(30), draw.choice((0, 2, 12, 31))) for each in added.split()]
    return moves


def named_moves(seed: int, named: str) -> list[Move]:
    """Those and no others, each with the seconds that follow it."""
    draw = Random(seed)
    return [Move(name, draw.getrandbits(30), float(wait)) for name, _, wait in (each.partition("@") for each in named.split())]


STORY, STEPS = "workflows/remediation/story.py", "workflows/remediation/steps.py"
LADDER_STEP, GIVING_UP = "workflows/remediation/ladder_step.py", "workflows/remediation/after_preservation.py"
PREFLIGHT, EPISODE = "workflows/episode/preflight.py", "workflows/episode/episode.py"
NODE_WRITES, COMMANDS = "workflows/episode/node_writes.py", "workflows/episode/commands.py"
PATHS = "workflows/fencing/paths.py"
KEPT, APART = "workflows/preservation/story.py", "workflows/preservation/isolation.py"
DEFINITIONS = "workflows/definitions/episodes.py"
FENCING, POWER_STEPS = "workflows/fencing/story.py", "workflows/fencing/power_steps.py"
POWER, CONSEQUENCES = "workflows/fencing/power_sequence.py", "workflows/fencing/consequences.py"
DEVICES, LICENCES = "workflows/fencing/device_commands.py", "activities/licences.py"
END = "workflows/episode/end.py"
BEGINNING, SCANNER = "workflows/episode/episode_workflow.py", "workflows/definitions/scanner.py"
SCANS, PERMITS = "workflows/scanner/story.py", "workflows/scanner/permits.py"
COMMANDS_TO_SCANNER, RELEASES = "workflows/scanner/commands.py", "workflows/scanner/releases.py"
SPELLS, PERMIT_RULES = "workflows/scanner/spells.py", "policy/scan/permit_rules.py"

# fmt: off
GUARDS: dict[Callable[[int], list[str]], tuple[Guard, ...]] = {
    episode: (
        Guard("what a ladder left is taken back: an object", "S35", 513, STEPS,
              'await self._call(ExternalActivities.delete, f"deletes {self._called}")', "None"),
        Guard("what a ladder left is taken back: a wish to the owner", "S35", 412, STEPS,
              'return await self._target.take_back("what its owner was asked for")', 'return ""'),
        Guard("what a ladder left is taken back: an annotation", "S35", 511, STEPS,
              'left = await self._target.take_back("the annotations of the Machine")', 'left = ""'),
        Guard("what a ladder left is taken back: a claim that came to nothing", "S35", 298, STEPS,
              "return await withdraw_claim(self._target.node_writer, self._give_up, UNDO_PAUSE)", 'return ""'),
        Guard("also an object of which the answer was lost", "S35", 436, STEPS,
              '        self._state.may_stand = True\n        return await self._execute(', "        return await self._execute("),
        Guard("also a wish to the owner", "S35", 409, STEPS,
              'def _request(self, before: BeforeActing) -> ActResult:\n        self._state.may_stand = True',
              'def _request(self, before: BeforeActing) -> ActResult:\n        pass'),
        Guard("also an annotation", "S35", 424, STEPS,
              'def _annotate(self, before: BeforeActing) -> ActResult:\n        self._state.may_stand = True',
              'def _annotate(self, before: BeforeActing) -> ActResult:\n        pass'),
        Guard("also what a reset took back", "S35", 376, STORY,
              'not self.episode.was_reset or self._request.adopts:\n            return', 'True:\n            return'),
        Guard("a ladder's mark goes at the end", "S35", 561, STORY,
              '                await self.target.node_writer.remove_marks(UNMARK_PAUSE)\n        return await close',
              '                pass\n        return await close'),
        Guard("also a mark of which the answer was lost", "S35", 442, STORY,
              '        await self.target.node_writer.remove_marks(UNMARK_PAUSE)\n        return interrupt.reason',
              "        return interrupt.reason"),
        Guard("an object that has had its time is taken away before a person's next round", "S44", 624, STORY,
              "[each for each in self._steps if each.begins_anew]", "[]"),
        Guard("a controller is told that its time is over before the next step begins", "S13", 394, STEPS,
              '            seen = await self._call(ExternalActivities.time_out, "tells its controller that its time is over")',
              "            return"),
        Guard("an annotation goes before the next step begins", "S13", 388, STEPS,
              'given up", why)\n        await self.take_back()', 'given up", why)'),
        Guard("an abort is heard while a controller acts", "S20", 367, STEPS,
              '            await self._target.preflight.may_go_on()\n            self._episode.enter(doing=self._lasts',
              "            self._episode.enter(doing=self._lasts"),
        Guard("an abort is heard while an operator acts", "S20", 363, STEPS,
              '        await target.preflight.may_go_on()\n        if await', "        if await"),
        Guard("an owner that has not begun is asked no more after a veto, or once the need is gone", "S20", 348, STEPS,
              "            await self._target.preflight.before_others_act()", "            pass"),
        Guard("a deletion that was asked for is not asked for again", "S33", 400, STEPS,
              "while not await self.goes():", "while True:"),
        Guard("a success is believed of a node only that is well", "S35", 456, STEPS,
              'if not await target.is_well(succeeded=succeeded):\n            if seen',
              'if not succeeded and not await target.is_well():\n            if seen'),
        Guard("a reboot frees nothing", "S1", 514, STEPS,
              '        freeing=Freeing.NONE,\n', ""),
        Guard("what is done is noted on the target before", "S19", 334, LADDER_STEP,
              '            remember = self._memory_request()\n            self.progress',
              '            remember = None\n            self.progress'),
        Guard("what came to nothing is noted no longer", "S19", 298, LADDER_STEP,
              '            await self.forget()\n            await self._remember_failures()',
              "            await self._remember_failures()"),
        Guard("no recovery while a step has left the machine off", "S35", 478, STORY,
              'return TO_SWITCH_ON if self.left_off is not None and not self._is_back else ""', 'return ""'),
        Guard("what a step has left off is switched on after an abort with power-on", "S35", 472, STORY,
              'problem = await off.story.bring_back()\n        return', 'problem = ""\n        return'),
        Guard("not where the machine has gone", "S9", 480, STORY,
              "or off.was_aborted or not await self._is_there():", "or off.was_aborted:"),
        Guard("what a step has left off is switched on at a person's word, without a permit", "S17", 478, STORY,
              "if off is not None and (episode", "if False and (episode"),
        Guard("that the machine may be off is told", "S35", 474, STORY,
              'message=f"{end.message}{MAY_BE_OFF}"', "message=end.message"),
        Guard("what stays cut is told", "S35", 252, STORY,
              'message=f"{end.message}; left cut: {\', \'.join(paths)}"', "message=end.message"),
        Guard("a deletion that goes on beside another step is followed", "S35", 505, STORY,
              "if end.outcome is Outcome.ABORTED or (deletion :=", "if True or (deletion :="),
        Guard("it is told that goes on", "S35", 507, STORY,
              "if self.deletes and end.outcome", "if False and end.outcome"),
        Guard("what a terminated predecessor has left is taken over by a ladder", "S1, S32", 522, STORY,
              "            await self._adoption.take_over()", "            pass"),
        Guard("the verdict of a look that a person says no", "S20", 126, PREFLIGHT,
              'raise Vetoed(result.reason)\n                case LookVerdict.TARGET',
              'return licence\n                case LookVerdict.TARGET'),
        Guard("an abort is heard before a look", "S20", 336, PREFLIGHT,
              'raise AbortAsked(str(abort))', "pass"),
        Guard("a hold is heard before a look", "S20", 334, PREFLIGHT,
              "if (held := self._episode.longest_hold) is None:", "if (held := self._episode.longest_hold) is None or True:"),
        Guard("both are heard once a reset was waited out", "S20", 376, PREFLIGHT,
              "            await self._episode.outlive_reset()  # what", "            pass  # what"),
        Guard("what is half done does not rest in a mode that allows no more", "S52", 517, PREFLIGHT,
              "if not self._may_rest():", "if False:"),
        Guard("no permit is kept in a mode that allows no more", "S14", 514, PREFLIGHT,
              '                await give_back_permit(episode, held=True)\n            began',
              '                pass\n            began'),
        Guard("an answer that came late to a look licenses nothing", "S45", 56, PREFLIGHT,
              "if not interrupted and workflow.now() < until:", "if not interrupted:"),
        Guard("a permit that the scanner does not know is asked for anew", "S14", 451, PREFLIGHT,
              "await self._ask_for_permit(under)", "pass"),
        Guard("what people say while a look is taken is heard", "S20", 127, PREFLIGHT,
              "interrupted = self._episode.state.abort_asked is not None or self._episode.longest_hold is not None",
              "interrupted = False"),
        Guard("an act of which it is unclear whether it was done is waited out", "S34", 49, EPISODE,
              "            await self.settle((timedelta(0) if answered else options.ACT_WINDOW) + options.IN_FLIGHT_MARGIN)",
              "            pass"),
        Guard("what a terminated predecessor had begun is waited out", "S34", 42, NODE_WRITES,
              "await self._episode.settle(settled_at - workflow.now())", "pass"),
        Guard("a predecessor's out-of-service taint is taken off", "S1, S32", 19, NODE_WRITES,
              "                await self._node_writer.untaint()", "                pass"),
        Guard("a word answers the question that was seen", "S48", 6, COMMANDS,
              "if question != (now := episode.state.question):", "if question != (now := episode.state.question) and False:"),
        Guard("no word for off is taken while a device says on", "S8", 28, DEFINITIONS,
              "if DEVICE_READS_ON not in request.override and episode.devices_on:", "if False:"),
        Guard("a deletion of which the answer was lost is waited out before it is asked for again", "S34", 625, STEPS,
              "                        await self._episode.settle(options.ACT_WINDOW + options.IN_FLIGHT_MARGIN)",
              "                        pass"),
        Guard("a changed target at a last look", "S9, S20", 8, PREFLIGHT,
              "raise TargetChanged(result.reason)\n                case LookVerdict.NOT_LICENSED if",
              "return licence\n                case LookVerdict.NOT_LICENSED if"),
        Guard("another target by the time that its pods are to be freed", "S9, S47", 27, PREFLIGHT,
              "            raise TargetChanged(result.reason)\n        if result.verdict is LookVerdict.NOT_LICENSED:\n",
              "            pass\n        if result.verdict is LookVerdict.NOT_LICENSED:\n"),
        Guard("a need that is gone before pods are freed", "S6", 347, CONSEQUENCES,
              "if seen is not None and seen.need_gone and not began:", "if False:"),
        Guard("power is read again before they are", "S2", 92, CONSEQUENCES,
              "            await self.wait_while_held()\n            proof = await self._power.read_again()",
              "            await self.wait_while_held()\n            proof = self._power.proof"),
        Guard("a hold that comes while it looks, right before freeing", "S20", 69, CONSEQUENCES,
              "if self._episode.is_held:\n                continue  # one", "if False:\n                continue  # one"),
        Guard("an abort that comes before power-on", "S20", 85, POWER_STEPS,
              "if abort is not None and self._case.leaves_off:\n            raise", "if False:\n            raise"),
        Guard("what only restores asks for no permit", "S17", 63, FENCING,
              "if case.only_restoring_is_left:", "if False:"),
        Guard("a path behind which pods were freed stays cut", "S35", 87, FENCING,
              "return may_restore_path(consequences", "return True or may_restore_path(consequences"),
        Guard("what a reset took back is waited out", "S34", 94, EPISODE,
              "at + options.LONGEST_IN_FLIGHT - workflow.now() if at is not None else timedelta(0)", "timedelta(0)"),
        Guard("a device that says on ends a proof at once", "S6", 210, POWER,
              "if any(reading.state is PowerState.ON for reading in readings):\n            self._progress.on_since",
              "if False:\n            self._progress.on_since"),
        Guard("what needs a proof may begin for so long after power was read", "S45", 5, POWER,
              "return asked + max(options.ACT_WINDOW,", "return workflow.now() + max(options.ACT_WINDOW,"),
        Guard("an off of which the answer was lost is read before another one is sent", "S33", 633, DEVICES,
              "unclear=True)\n        interrupt =", "failed=StepFailed('unclear'))\n        interrupt ="),
        Guard("a reading is believed for a minute (by workers)", "S45", 24, LICENCES,
              "return now - datetime.fromtimestamp(int(moment, 16), UTC) <= within", "return True"),
        Guard("a licence is used once (by workers)", "S42", 64, LICENCES,
              "if use in self._used and self._used[use][0] != user:", "if False:"),
        Guard("a person's override is attested", "S17", 180, BEGINNING,
              "            return NOT_ATTESTED\n        commands.take_override(self.episode, command.sealed)",
              "            from policy.episode.node_action import SealedCommand as Claim\n"
              "            command = replace(command, sealed=Claim(spec=spec, action='', speaker='', node_uid='', boot_id=''))\n"
              "        commands.take_override(self.episode, command.sealed)"),
        Guard("it ends with the boot that it was given for (by workers)", "S17, S42", 630, LICENCES,
              'if target.override is not None and not doubt else ""', 'if target.override is not None else ""'),
    ),
    vetoed_episode: (
        Guard("a hold that comes while an end is carried out keeps the episode open", "S44", 2, END,
              "if episode.is_held and workflow.patched(WORD_OUTLIVES_IT):", "if False:"),
        Guard("an abort that comes then makes it an aborted one", "S19, S44", 5, END,
              "if abort is not None and workflow.patched(WORD_OUTLIVES_IT):", "if False:"),
    ),
    ladder: (
        Guard("a step has its time although no worker was there meanwhile", "S20, S37", 40, EPISODE,
              "        self.lose_time(now - since)\n", "        pass\n"),
        Guard("also where that was while a device was asked, or something in flight was waited out", "S20, S37", 187, EPISODE,
              "if workflow.now() > ends + LATE and workflow.patched(STOOD_STILL_TOO):", "if False:"),
        Guard("what a step waits for before it asks others to act is not its time", "S20", 405, LADDER_STEP,
              "if waited > AT_ONCE and step.asked is None and workflow.patched(WAITS_TAKE_NO_TIME):", "if False:"),
        Guard("what a fencing waits for before it may act is not the time of its step: a hold", "S20", 23, PREFLIGHT,
              "            self._take_no_time()\n            if self._idle():\n", "            if self._idle():\n"),
        Guard("nor is a hold after off", "S20", 59, EPISODE,
              "if since is not None and workflow.now() > since + LATE and workflow.patched(HOLD_TAKES_NO_TIME):", "if False:"),
        Guard("what a fencing waits for before it may act is not the time of its step: a licence", "S20", 3, PREFLIGHT,
              "                    if workflow.patched(WAITS_TAKE_NO_TIME):\n                        self._take_no_time()\n", ""),
        Guard("what a fencing waits for before it may act is not the time of its step: a mode", "S20, S52", 35, PREFLIGHT,
              "            if takes_none:\n                self._take_no_time()\n", ""),
        Guard("a clock of the API server that is behind ends no step", "S20", 175, STEPS,
              "return true if true != made and workflow.patched(BY_ANOTHER_CLOCK) else made", "return made"),
        Guard("a mode or a queue in which another history was left is not the look's time", "S20", 128, PREFLIGHT,
              "if each in look.within and workflow.patched(ALSO_OF_FORMER):", "if False:"),
        Guard("nor is a hold", "S20", 38, PREFLIGHT,
              "if (held := under.waited.get(HOLD)) and workflow.patched(ALSO_A_HOLD):", "if (held := timedelta(0)):"),
        Guard("a ladder that lacks its licence asks a person, and goes on with no other step", "S20", 44, STORY,
              "if missing and workflow.patched(ASKS_FOR_LICENCE):", "if False:"),
        Guard("a ladder that is held before it began keeps no permit", "S14", 15, STORY,
              "idle=lambda: not progress.tried and workflow.patched(HELD_WITHOUT_A_PERMIT),", "idle=lambda: False,"),
        Guard("what Temporal has repeated in vain is repeated once more after time without a worker", "S37", 357, EPISODE,
              "if not self._add_standstill(since=ends) or not options.is_repeated(config):", "if True:"),
    ),
    ladder_of_another_failure: (
        Guard("an object of an earlier failure ends no step", "S20", 2, STEPS,
              "return old and workflow.patched(OF_AN_EARLIER_FAILURE)", "return False"),
    ),
    preservation: (
        Guard("a release that comes while a look is taken is heard", "S20", 471, PREFLIGHT,
              "interrupted = interrupted or (bool(self._gone()) and workflow.patched(GONE_MEANWHILE))", "pass"),
        Guard("a hold keeps the pods", "S20", 185, KEPT,
              '            if self.episode.is_held:\n                await', '            if False:\n                await'),
        Guard("a hold is heard that comes while the node is marked", "S20", 185, KEPT,
              "                    continue  # what was said meanwhile is heard first (S20)", "                    pass"),
        Guard("a hold is heard while the machine is given up", "S20", 102, GIVING_UP,
              "held = self.episode.longest_hold is not None and not progress.asked", "held = False"),
        Guard("an abort is heard while the machine is given up", "S20", 153, GIVING_UP,
              "if (abort := self.episode.state.abort_asked) is not None and not progress.asked:", "if False:"),
        Guard("an abort is heard that comes with the permit", "S20", 153, GIVING_UP,
              "                continue  # what was said meanwhile is heard first (S20)", "                pass"),
        Guard("a permit before the deletion", "S14", 1, GIVING_UP,
              "if not (needs_none or progress.asked or self.episode.state.permit):", "if False:"),
        Guard("a permit before anything is cut", "S14", 900, APART,
              '        await self._obtain_permit()\n        # A last', "        # A last"),
        Guard("that permit is given back while the machine stays cut", "S14", 1025, APART,
              '        await self._leave()\n        return self._known', "        return self._known"),
        Guard("a machine that is asked for after all is kept", "S27", 337, GIVING_UP,
              "                await self._go_back(found)", "                pass"),
        Guard("a machine of which the preservation was aborted is given up by no program", "S21", 62, KEPT,
              "is None or self.episode.state.abort_asked is not None:", "is None:"),
        Guard("a cancellation ends no preservation", "S21", 16, DEFINITIONS,
              '        return f"{ends}: `nodewarden release', '        return "" and f"{ends}: `nodewarden release'),
        Guard("an abort or a release ends the drain", "S20", 42, KEPT,
              "while self.episode.state.abort_asked is None and not self._progress.wish.release:", "while True:"),
        Guard("the mark goes at the end", "S35", 9, KEPT,
              "if self._progress.cutting_off.marked or self._is_marked:", "if False:"),
        Guard("the mark goes where giving up is aborted", "S35", 153, GIVING_UP,
              "            await self._node_writer.remove_marks(UNMARK_PAUSE)", "            pass"),
        Guard("it goes from a Node that outlives its Machine", "S35", 464, KEPT,
              "node_uid=hold.node_uid or self._progress.node_uid))  # a Node", "node_uid=hold.node_uid))  # a Node"),
        Guard("what stays cut is told, of a kept machine", "S35", 73, KEPT,
              "            message += self._apart.left", "            pass"),
        Guard("what a predecessor has left cut is found", "S35", 254, APART,
              "if self._known.pin is None and self._episode.state.adopted:", "if False:"),
        Guard("what a predecessor has left cut is taken over with its mark", "S35", 254, APART,
              "self._made(pin)[1].paths.adopt(pin.adopted_paths)", "pass"),
        Guard("paths behind which pods were freed stay cut", "S35", 44, APART,
              "if not (self._freed or self._episode.state.found_cut):", "if True:"),
        Guard("they stay cut until another boot than theirs", "S35", 44, APART,
              'return bool(boot) and seen.boot_id not in {"", boot}', "return True"),
        Guard("only a machine that is well is given back what was cut", "S35", 73, KEPT,
              "if hold is not None and hold.well:", "if hold is not None:"),
        Guard("what a person was told holds where nothing keeps it any more", "S44", 280, KEPT,
              "if wish.until is not None and not (hold.preserved", "if False and not (hold.preserved"),
        Guard("what is said while it is written is written next", "S44", 42, KEPT,
              "if self._progress.wish is wish:", "if True:"),
        Guard("a hold is heard before the machine is given up", "S20", 120, KEPT,
              'await self.episode.wait_while_held()\n                    continue', "pass"),
        Guard("a deployment learns its name before it evicts", "S38", 6, KEPT,
              '        if self.episode.state.holder:\n            return', '        if True:\n            return'),
        Guard("a hold of the one that was terminated goes on", "S20, S44", 120, KEPT,
              "                take_hold(episode, hold)", "                pass"),
    ),
    later_preservation: (
        Guard("a deletion that is not licensed any more asks for a permit anew", "S14", 52, GIVING_UP,
              "progress.asked = episode.state.permit = False", "progress.asked = False"),
        Guard("a deletion of a kept machine of which the answer was lost is waited out", "S33, S34", 2, GIVING_UP,
              "            await episode.settle(options.DELETION_DEADLINE)", "            pass"),
        Guard("what a terminated preservation had begun is waited out", "S34", 600, NODE_WRITES,
              "await self._episode.settle(settled_at - workflow.now())", "pass"),
        Guard("our claim on the Node goes where giving up is aborted", "S35", 501, GIVING_UP,
              "left = await withdraw_claim(self._node_writer, withdraw, PAUSE)", 'left = ""'),
        Guard("what stays cut is told where giving up is aborted", "S35", 100, GIVING_UP,
              "{when}{self._progress.left}{left}", "{when}{left}"),
        Guard("a mark of which the answer was lost goes, too", "S35", 99, KEPT,
              "(found and not progress.cutting_off.marked and workflow.patched(FOUND_MARKED))", "False"),
        Guard("the machine is looked at after the wait for a permit to cut it off", "S20", 411, APART,
              "waited and workflow.patched(LOOKS_AFTER_WAIT)", "False"),
    ),
    latest_preservation: (
        Guard("no permit is kept where a person keeps the machine after all", "S14", 140, GIVING_UP,
              "        await give_back_permit(episode, outcome=Outcome.RELEASED.value, problem=why)", "        pass"),
        Guard("an abort is heard while no permit is granted", "S20", 62, GIVING_UP,
              "return await self._aborted(abort)\n            self.episode.state.problem",
              "pass\n            self.episode.state.problem"),
        Guard("no permit is asked for once the machine is to be let go", "S14", 63, APART,
              "or waits or self._objection():", "or waits:"),
        Guard("a permit goes that was granted when it was not wanted any more", "S14", 263, APART,
              "            if self._episode.state.permit:\n                await self._leave()  # granted",
              "            if False:\n                await self._leave()  # granted"),
        Guard("pods that are left behind the cut are tried again", "S44", 2770, APART,
              "if self._known.isolation.pods_left:", "if False:"),
        Guard("what restarts before it is cut off is cut off in its new boot", "S44", 1463, APART,
              "        await self._pin_boot()\n", "        pass\n"),
        Guard("what a predecessor may have freed counts once something of its own is begun", "S35", 1284, APART,
              "self._known.freed_before = self._freed or (not self.begun and self._episode.state.freed)",
              "self._known.freed_before = self._freed"),
        Guard("a predecessor may have freed pods behind what it has cut", "S35", 1284, APART,
              "                note_unseen_cuts(self._episode, pin.adopted_paths)", "                pass"),
        Guard("no person is asked about a path that is open", "S44", 387, APART,
              "                await sequence.let_go_of_open_paths()", "                pass"),
        Guard("a person's word gives a path back", "S44", 525, APART,
              "if self._episode.state.path_command is not None:", "if False:"),
        Guard("an abort is heard while a path is to be given back", "S20", 354, APART,
              "            if self._episode.state.abort_asked is not None:\n                return self.left",
              "            if False:\n                return self.left"),
        Guard("what a predecessor has left cut is found before the machine is given up", "S35", 797, KEPT,
              "                await self._apart.find_adopted()\n                await self.episode.publish",
              "                await self.episode.publish"),
        Guard("what a predecessor has left cut is told of a Machine that is gone", "S35", 3062, KEPT,
              "elif self._progress.cutting_off.pin is None and", "elif False and"),
        Guard("a mark goes that an adoption without an answer has written", "S35", 65, KEPT,
              "            self._progress.marked = True  # for all", "            pass  # for all"),
        Guard("nothing is drained while a predecessor's act may be under way", "S34", 18, KEPT,
              "if hold.drain and not self._adopts:", "if hold.drain:"),
        Guard("nor cut off", "S34", 4369, KEPT,
              "if not self._adopts and await self._apart.carry_out(hold):", "if await self._apart.carry_out(hold):"),
        Guard("what can't be adopted yet is tried again after a while", "S35", 123, KEPT,
              "elif (again := self._apart.next_try(hold)) is not None:", "if (again := self._apart.next_try(hold)) is not None:"),
        Guard("another Machine of that name is not given up", "S9", 128, GIVING_UP,
              "if error_type(error) is ErrorType.TARGET_CHANGED:", "if False:"),
        Guard("what a health check has called failed is so until its Node is well", "S44", 158, GIVING_UP,
              'kept.unhealthy = "" if found.well else kept.unhealthy', 'kept.unhealthy = ""'),
        Guard("and no longer", "S35", 378, GIVING_UP,
              'kept.unhealthy = "" if found.well else kept.unhealthy', "pass"),
        Guard("a path is let go of which the note may be written", "S35", 387, PATHS,
              "if workflow.patched(MAY_BE_NOTED):", "if False:"),
    ),
    nodes_of_kept: (
        Guard("what a person wanted outlives the Node", "S21", 4, "policy/preservation/requests.py",
              'values.machine is not None else values.last_applied or ""', 'True else ""'),
        Guard("also where its Node is made anew", "S21", 4, "policy/preservation/machine_snapshot.py",
              "node_stayed=self.node is not None and not anew", "node_stayed=self.node is not None"),
        Guard("a hold outlives the Node", "S44", 4, KEPT, "if same_machine and self.episode.is_held and", "if False and"),
        Guard("also what is said of its end", "S44", 14, KEPT, "if not (hold.gone and hold.replaced):", "if True:"),
    ),
    kept_by_its_pool: (
        Guard("what is kept for its failure is not well since its Node is gone", "S21, S22", 1,
              "policy/preservation/pool_cap.py",
              "if not ends_once_well(machine) or", "if machine.node is None or not ends_once_well(machine) or"),
    ),
    scanner: (
        Guard("the memo of a new history", "S44, S52", 1, SCANNER,
              "memo = {**workflow.memo(), **took_over}", "memo = took_over"),
        Guard("no report that was made under former modes is acted on", "S52", 92, COMMANDS_TO_SCANNER,
              "            self._underway.drop_report()\n            self._underway.cut_short()\n", "            pass\n"),
        Guard("a pause stops each last look", "S44", 4, SCANS,
              "        halted = self._commands.halted\n        answers", '        halted = ""\n        answers'),
        Guard("a reset has the table of permits built anew", "S14", 19, PERMITS,
              'if self._forgotten or (report.run and self._run not in {"", report.run}) or (reborn', "if False and (reborn"),
        Guard("the list of open episodes is waited for", "S14", 140, PERMITS,
              "await workflow.sleep(lag, summary", "await workflow.sleep(0 * lag, summary"),
        Guard("`unpause` ends one's own pause, or the one that is named", "S44", 21, COMMANDS_TO_SCANNER,
              "ended = pauses.to_be_ended(in_force, owner=request.owner, of=request.of)", "ended = in_force"),
        Guard("how nodes stand that are left alone is asked", "S44", 46, SPELLS,
              "{*state.spells, *state.held_off}, state.report", "{*state.spells}, state.report"),
        Guard("what people set after a reset counts more than what was set before", "S44", 167, COMMANDS_TO_SCANNER,
              "found.ended or now\n", "now\n"),
        Guard("the next scanner leaves alone what the last one did", "S19", 182, SPELLS,
              "            self.leave_alone(found.held_off)\n", "            pass\n"),
        Guard("and what a person has aborted while none ran", "S19, S44", 15, SCANS,
              "        self.spells.leave_alone(found.left_alone)\n", "        pass\n"),
        Guard("and the time after too many failed attempts goes on", "S19", 17, "policy/episode/permits.py",
              "return not self.holder and len(self.node)", "return self.until is None and not self.holder and len(self.node)"),
    ),
    restarted_scanner: (
        Guard("what may be left alone waits until the last scanner has said so", "S19", 8, SCANS,
              "unasked=bool(self._state.former_run),", "unasked=False,"),
        Guard("what it has said outlives an opening that was refused meanwhile", "S19", 17, "workflows/scanner/hold_offs.py",
              "if until is not None and _is_held_longer(", "if False and _is_held_longer("),
    ),
    stopped_scanner: (
        Guard("a stop that a reset takes back is obeyed", "S44", 2, COMMANDS_TO_SCANNER,
              "if was_reset and found.stopped and ours and workflow.patched(STOPPED_BEFORE):", "if False:"),
    ),
    moved_nodes: (
        Guard("a check that no longer selects the node asks for nothing", "S13", 25, "policy/episode/need_now.py",
              'return _against(Weight.NEED_GONE, f"{key} no longer selects the node")', "return STANDS"),
    ),
    deceived_scanner: (
        Guard("a release is confirmed", "S14", 13, RELEASES, "if not workflow.patched(CONFIRMED):", "if True:"),
    ),
    limited_scanner: (
        Guard("the cap of a fence policy", "S14", 2, PERMIT_RULES, "self.cap = self.policies.cap or cap", "self.cap = cap"),
    ),
    renamed_nodes: (
        Guard("a machine under another name is the same one", "S13", 15, PERMIT_RULES,
              "        if self.provider_id:\n", "        if False:\n"),
    ),
    pair: (
        Guard("so many permits as may be held", "S14", 2, PERMIT_RULES,
              "if len(names := room.names) + room.ahead < room.cap:", "if (names := room.names) is not None:"),
        Guard("so many nodes of a check as `max-in-flight` lets be remediated", "S14", 225, PERMIT_RULES,
              "if limit.at_once is not None and len(busy) >= limit.at_once:", "if False:"),
        Guard("a last look is for the incident that holds the permit", "S14", 47, PERMITS,
              "permit is None or permit.incident != asked.incident or permit.state is PermitState.PARKED", "permit is None"),
        Guard("the quorum is counted at each last look", "S15", 90, PERMITS,
              "if not reason and report is not None and permit.control_plane is not False:", "if False:"),
        Guard("an episode says that its node is of the control plane, also to a new scanner", "S15", 184, FENCING,
              "            pin.control_plane,\n", "            False,\n"),
        Guard("a pause stops each last look of a real episode", "S44", 15, PERMITS,
              "            reason = halted\n", "            reason = \"\"\n"),
    ),
    control_plane: (
        Guard("the control plane is looked at live before each act", "S15", 22, "policy/episode/gate.py",
              "    if needed is None:\n        return None\n    weight", "    if True:\n        return None\n    weight"),
    ),
}
# fmt: on


def table() -> str:
    """Of docs/adversary.md."""
    lines = ["| taken out | rule | noticed by |", "|---|---|---|"]
    for play, guards in GUARDS.items():
        lines += [f"| {each.what} | {each.rule} | {play.__name__} {each.seed} |" for each in guards]
    return "\n".join(lines)


def main() -> None:
    """Print what notices each guard."""
    options = argparse.ArgumentParser(description="Take guards out, one at a time, and see which play notices.")
    options.add_argument("words", nargs="*", help="of the guards' names (all)")
    options.add_argument("--plays", type=int, default=640, help="at most so many for each (640)")
    options.add_argument("--of", default="", help=f"of these plays alone: {', '.join(each.__name__ for each in GUARDS)}")
    options.add_argument("--table", action="store_true", help="print the table of docs/adversary.md")
    asked = options.parse_args()
    if asked.table:
        print(table())
        return
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    for play, guards in GUARDS.items():
        for guard in guards:
            if all(word in guard.what for word in asked.words) and asked.of in {"", play.__name__}:
                seeds = (seed for seed in (guard.seed, *range(1, asked.plays)) if guard.noticed(play, seed) and not play(seed))
                print(f"{play.__name__} {next(seeds, 'none')}: {guard.what}", flush=True)


if __name__ == "__main__":
    main()
