"""Any events in any order at a shard: one leader a generation, everybody gets what it gave, everybody is answered."""

from __future__ import annotations

from group_rig import REBALANCE_MS, SESSION_MS, GroupRig
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kraftcore.plugins.broker.groups.membership import NEW_MEMBER_JOIN_TIMEOUT_MS
from kraftcore.protocol.error_codes import ErrorCode

GROUPS = st.sampled_from(["g", "h"])
ERRORS = st.sampled_from([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.MESSAGE_TOO_LARGE])
ANY_MEMBER = st.integers(0, 7)


class GroupsMachine(RuleBasedStateMachine):
    @initialize(max_size=st.sampled_from([2, 1000]))
    def begin(self, max_size):
        self.rig = GroupRig(max_size=max_size)
        self.joins, self.syncs, self.others = [], [], []
        self.known = {"g": [], "h": []}  # (member id, generation, instance) of every join that succeeded
        self.leaders, self.given, self.last = {}, {}, {}
        self.expected = {}

    # --- clients ------------------------------------------------------------------------------------------------------

    def note(self):
        """Take in the answers that came."""
        for group, instance, version, asked in [each for each in self.joins if each[3].response is not None]:
            self.joins.remove((group, instance, version, asked))
            told = asked.response
            if asked.error is ErrorCode.MEMBER_ID_REQUIRED:
                self.known[group].append((told.member_id, -1, instance))
            if asked.error is not ErrorCode.NONE:
                continue
            assert told.generation_id >= self.last.get(group, 0), "a generation fell"
            self.last[group] = told.generation_id
            self.known[group].append((told.member_id, told.generation_id, instance))
            of = (group, told.generation_id)
            if told.member_id == told.leader:
                assert {each.member_id for each in told.members} >= {told.leader}
                before = self.leaders.setdefault(of, told.leader)
                # Only a static leader that came back has another id.
                assert before == told.leader or instance is not None
                self.leaders[of] = told.leader
        for group, member, generation, instance, asked in [each for each in self.syncs if each[4].response is not None]:
            self.syncs.remove((group, member, generation, instance, asked))
            if asked.error is ErrorCode.NONE and instance is None:
                given = self.given.get((group, generation), [])
                assert asked.response.assignment in [each.get(member, b"") for each in given], "from nobody"

    @rule(group=GROUPS, instance=st.sampled_from([None, None, "i", "j"]), version=st.sampled_from([3, 8, 9]))
    def join(self, group, instance, version):
        asked = self.rig.join(group=group, instance=instance, version=version)
        self.joins.append((group, instance, version, asked))
        self.note()

    @rule(group=GROUPS, which=ANY_MEMBER, topic=st.sampled_from(["t", "u"]))
    def join_again(self, group, which, topic):
        if self.known[group]:
            member, _, instance = self.known[group][-1 - which % len(self.known[group])]
            asked = self.rig.join(member, group=group, instance=instance, topics=(topic,))
            self.joins.append((group, instance, 9, asked))
            self.note()

    @rule(group=GROUPS, which=ANY_MEMBER)
    def sync(self, group, which):
        if self.known[group]:
            member, generation, instance = self.known[group][-1 - which % len(self.known[group])]
            given = None
            now = self.rig.shard.groups.get(group)
            if now is not None and now.leader == member:
                given = {each: f"{group} {generation} {each} {len(self.syncs)}".encode() for each in now.members}
                self.given.setdefault((group, generation), []).append(given)
            asked = self.rig.sync(member, generation, given, group=group, instance=instance)
            self.syncs.append((group, member, generation, instance, asked))
            self.note()

    @rule(group=GROUPS, which=ANY_MEMBER)
    def heartbeat(self, group, which):
        if self.known[group]:
            member, generation, instance = self.known[group][-1 - which % len(self.known[group])]
            self.rig.heartbeat(member, generation, group=group, instance=instance)

    @rule(group=GROUPS, which=ANY_MEMBER)
    def leave(self, group, which):
        if self.known[group]:
            member, _, instance = self.known[group][-1 - which % len(self.known[group])]
            self.others.append(self.rig.leave((member, instance), group=group))
            self.note()

    @rule(group=GROUPS, which=ANY_MEMBER, offset=st.integers(0, 9), alone=st.booleans())
    def commit_offset(self, group, which, offset, alone):
        member, generation, instance = "", -1, None
        if not alone and self.known[group]:
            member, generation, instance = self.known[group][-1 - which % len(self.known[group])]
        entries = len(self.rig.log)
        self.others.append(
            self.rig.commit_offsets({("t", 0): offset}, member, generation, group=group, instance=instance)
        )
        if len(self.rig.log) > entries:
            self.expected[group] = offset

    @rule(group=GROUPS)
    def delete(self, group):
        entries = len(self.rig.log)
        self.others.append(self.rig.delete(group))
        if len(self.rig.log) > entries:
            self.expected.pop(group, None)
            self.last.pop(group, None)  # one of this name begins anew
            self.leaders = {of: leader for of, leader in self.leaders.items() if of[0] != group}
            self.given = {of: given for of, given in self.given.items() if of[0] != group}

    # --- the log and time ---------------------------------------------------------------------------------------------

    @rule(commits=st.booleans(), fails=st.none() | ERRORS)
    def change_log(self, commits, fails):
        self.rig.commits_at_once, self.rig.fails = commits, fails
        if commits:
            self.rig.commit()
        self.note()

    @rule(delay_ms=st.sampled_from([100, 3000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def wait(self, delay_ms):
        self.rig.after(delay_ms)
        self.note()

    @rule()
    def change_coordinator(self):
        """What is in the log is all that the next one knows."""
        old = self.rig
        old.commit()
        self.note()
        offsets = {group: old.offsets(group) for group in ("g", "h")}
        old.carry_out(old.shard.unload(old.now_ms))
        self.note()
        self.check_answered()
        self.rig = new = old.reload(max_size=old.settings.max_size)
        new.log = list(old.log)
        assert {group: new.offsets(group) for group in ("g", "h")} == offsets
        # Generations that nobody stored are not known: they come again, with other leaders.
        self.last.clear()
        self.leaders.clear()
        self.known = {"g": [], "h": []}

    def check_answered(self):
        assert not self.joins
        assert not self.syncs
        assert all(each.response is not None for each in self.others)
        self.others.clear()

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def offsets_are_what_was_committed(self):
        if not self.rig.uncommitted:
            for group in ("g", "h"):
                found = self.rig.offsets(group)
                assert found == ({("t", 0): self.expected[group]} if group in self.expected else {})

    def teardown(self):
        """Whatever happened: with a log that works, time alone ends every wait."""
        if hasattr(self, "rig"):
            self.rig.fails, self.rig.commits_at_once = None, True
            self.rig.commit()
            self.rig.after(2 * NEW_MEMBER_JOIN_TIMEOUT_MS)
            self.note()
            self.check_answered()
            assert all(not group.members for group in self.rig.shard.groups.values())


TestGroups = GroupsMachine.TestCase
TestGroups.settings = settings(TestGroups.settings, stateful_step_count=40, deadline=None)
