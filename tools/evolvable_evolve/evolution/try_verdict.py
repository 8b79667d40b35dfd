"""The verdict of a trial of skills: the claim about each skill, and what voids it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.statistics import (
    MIN_NET,
    SIDE_ALPHA,
    LabelTest,
    TryAnswer,
    carried_difference,
    claim_of_groups,
    step_up,
)
from evolvable_evolve.evolution.task import Task, Trial
from evolvable_evolve.evolution.tasks import MARK
from evolvable_evolve.evolution.try_answer import (
    MAX_SHOWN_TEXT,
    ClaimOnTasks,
    SkillTrial,
    TaskAnswers,
    TryResult,
    sentence_of,
    skills_to_json,
)
from evolvable_evolve.evolution.try_comparison import compared_claim
from evolvable_evolve.evolution.try_trials import TryArm, TryTrials, first_output

_MIN_SHARE = 0.9  # of the trials of each arm, which have to count


def record_answer(
    run: RunContext,
    seen: TryTrials,
    arms: Sequence[TryArm],
    stages: int,
    ended: str,
    compared: Mapping[str, Mapping[str, float]],
    pleased: Mapping[str, str],
) -> None:
    """Record the verdict: of one skill alone, or of several by Benjamini and Hochberg's rule.

    pleased: why the judge's scores are not believed, by skill.
    """
    void = _find_void_reason(run, seen, arms)
    claims = [_make_claim(run, seen, arm, stages, compared.get(arm.ref)) for arm in arms]
    if len(arms) > 1:
        claims = joint_answers(claims)
    skills = []
    for arm, claim in zip(arms, claims, strict=True):
        style = pleased.get(arm.ref, "")
        why = void or style or ended or _find_coverage_problem(run, seen, arm)
        # A clear answer stands although the trial ended early; a void one never does.
        if void or style or (why and claim.answer not in (TryAnswer.HELPS, TryAnswer.HARMS)):
            claim = replace(claim, answer=TryAnswer.CANNOT_TELL)
        skill_trial = _make_skill_trial(run, seen, arm, claim, compared.get(arm.ref), why)
        skills.append(replace(skill_trial, sentence=sentence_of(skill_trial)))
    first = skills[0].on_these
    verdict = str(first.answer) if len(skills) == 1 else f"{len(skills)} skills tried"
    run.note(
        "verdict",
        verdict=verdict,
        candidate="",
        why=" ".join(skill.sentence for skill in skills),
        look=0,
        alpha=SIDE_ALPHA,
        p=first.p,
        p_worse=first.p_worse,
        delta=(first.passed_with - first.passed_without) / max(1, first.tasks),
        interval=None,
        n=first.tasks,
        tried=skills_to_json(skills),
    )


def _make_claim(
    run: RunContext, seen: TryTrials, arm: TryArm, stages: int, compared: Mapping[str, float] | None
) -> ClaimOnTasks:
    if compared is not None:
        return compared_claim(compared)
    repeats = arm.repeats
    before, after = (seen.scores(program, repeats) for program in (run.base, arm.program))
    both = [task.id for task in run.val if before.get(task.id) and after.get(task.id)]
    decision = arm.decision
    # Without a decision no stage was finished.
    test, answer, p, p_worse = LabelTest(0, 0.0, 1.0, 1.0, False, 0, 0), None, 1.0, 1.0
    if decision is not None:
        test, answer, p, p_worse = decision.test, decision.answer, decision.p, decision.p_worse
    return ClaimOnTasks(
        answer or TryAnswer.CANNOT_TELL,
        len(both),
        repeats,
        sum(fmean(after[task]) for task in both),
        sum(fmean(before[task]) for task in both),
        test.fixed,
        test.broken,
        test.net,
        p,
        p_worse,
        test.steady,
        carried_difference(len(run.val), stages),
    )


def joint_answers(claims: Sequence[ClaimOnTasks]) -> list[ClaimOnTasks]:
    """Return the answers of several comparisons that were made at once.

    Each p-value stays as it was alone.
    """
    helps = step_up([claim.p for claim in claims])
    harms = step_up([claim.p_worse for claim in claims])
    joint = []
    for at, claim in enumerate(claims):
        answer = TryAnswer.CANNOT_TELL
        # The rule is about help and harm; no difference is a claim of another kind and stays.
        if claim.answer is TryAnswer.NO_DIFFERENCE:
            answer = TryAnswer.NO_DIFFERENCE
        if helps[at] and claim.net >= MIN_NET:
            answer = TryAnswer.HELPS
        elif harms[at] and claim.net <= -MIN_NET:
            answer = TryAnswer.HARMS
        joint.append(replace(claim, answer=answer))
    return joint


def joint_results(results: Sequence[TryResult]) -> list[TryResult]:
    """Return one trial under several executors with the joint answers of all of them."""
    places = [
        (at, place) for at, result in enumerate(results) for place in range(len(result.skills))
    ]
    claims = joint_answers([results[at].skills[place].on_these for at, place in places])
    skills = [list(result.skills) for result in results]
    for (at, place), claim in zip(places, claims, strict=True):
        skill = skills[at][place]
        # A run that could not tell for a reason of its own keeps that answer.
        if not (skill.why and skill.on_these.answer is TryAnswer.CANNOT_TELL):
            skill = replace(skill, on_these=claim)
            skills[at][place] = replace(skill, sentence=sentence_of(skill))
    return [replace(result, skills=own) for result, own in zip(results, skills, strict=True)]


def _find_coverage_problem(run: RunContext, seen: TryTrials, arm: TryArm) -> str:
    planned = arm.repeats * len(run.val)
    counts = [
        sum(map(len, seen.scores(program, arm.repeats).values()))
        for program in (run.base, arm.program)
    ]
    if planned and min(counts) < _MIN_SHARE * planned:
        return (
            f"Only {counts[0]} of {planned} trials without it and {counts[1]} with it came "
            "to a result."
        )
    return ""


def _find_void_reason(run: RunContext, seen: TryTrials, arms: Sequence[TryArm]) -> str:
    """Return why the comparison is void, '' where the arm without the skills never read one of
    them.
    """
    if run.base.parts:  # the other arm has a version of the skill, and may read it
        return ""
    refs = {arm.ref for arm in arms}
    marks = {
        line.strip()
        for arm in arms
        for part in arm.program.parts
        for text in part.texts.values()
        for line in text.splitlines()
        if len(line.strip()) >= MARK
    }
    marks |= set(run.state.about.get("exposed", ()))
    prompts = "\n".join(task.prompt for task in run.val)
    # A line that a prompt has shows nothing when it is in a trace.
    marks = {mark for mark in marks if mark not in prompts}
    trials = [trial for task_trials in seen.of(run.base).values() for trial in task_trials]
    read = sum(
        bool(refs.intersection(trial.read)) or any(mark in trial.trace for mark in marks)
        for trial in trials
    )
    if not read:
        return ""
    return f"The run is void: the arm without it read the skill in {read} of {len(trials)} trials."


def _make_skill_trial(
    run: RunContext,
    seen: TryTrials,
    arm: TryArm,
    claim: ClaimOnTasks,
    compared: Mapping[str, float] | None,
    why: str,
) -> SkillTrial:
    before, after = (seen.of(program) for program in (run.base, arm.program))
    mean_scores = [
        _compute_mean_scores(seen.scores(program, arm.repeats))
        for program in (run.base, arm.program)
    ]
    gains = dict(compared or {})
    if compared is None:
        means_before, means_after = mean_scores
        both = means_before.keys() & means_after.keys()
        gains = {task: means_after[task] - means_before[task] for task in both}
    # Tasks that are alike are one group: together they say once what they say.
    groups: dict[str, float] = {}
    for task in run.val:
        if task.id in gains:
            group = task.group or task.id
            groups[group] = groups.get(group, 0.0) + gains[task.id]
    refs = {arm.ref, *(part.ref for part in arm.program.parts)}
    read = sum(
        any(refs.intersection(trial.read) for trial in after.get(task.id, ())) for task in run.val
    )
    tokens, seconds = _compute_cost_change(before, after)
    return SkillTrial(
        arm.ref.partition(":")[2] or arm.ref,
        claim,
        claim_of_groups(list(groups.values())),
        read,
        tokens,
        seconds,
        _find_fallen_categories(run.val, mean_scores) if compared is None else {},
        _pair_answers(run.val, before, after, mean_scores),
        why,
        against=", ".join(part.ref for part in run.base.parts),
    )


def _compute_mean_scores(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {task: fmean(values) for task, values in scores.items() if values}


def _compute_cost_change(
    before: Mapping[str, Sequence[Trial]], after: Mapping[str, Sequence[Trial]]
) -> tuple[float | None, float | None]:
    """Return the relative change in tokens and the change in seconds, a trial."""
    arms = [
        [trial for task_trials in arm.values() for trial in task_trials if trial.outcome.counts]
        for arm in (before, after)
    ]
    if not all(arms):
        return None, None
    tokens = [
        fmean(trial.usage.input_tokens + trial.usage.output_tokens for trial in arm) for arm in arms
    ]
    seconds = [fmean(trial.wall for trial in arm) for arm in arms]
    token_change = tokens[1] / tokens[0] - 1 if tokens[0] and tokens[1] else None
    return token_change, seconds[1] - seconds[0]


def _find_fallen_categories(
    tasks: Sequence[Task], mean_scores: Sequence[Mapping[str, float]]
) -> dict[str, tuple[float, float]]:
    """Return the categories whose mean fell, where there are several categories."""
    by_category: dict[str, list[tuple[float, float]]] = {}
    for task in tasks:
        if task.id in mean_scores[0] and task.id in mean_scores[1]:
            pair = (mean_scores[0][task.id], mean_scores[1][task.id])
            by_category.setdefault(task.category, []).append(pair)
    # One category is the whole comparison, which has its own answer.
    if len(by_category) < 2:
        return {}
    means = {
        name: (fmean(before for before, _ in pairs), fmean(after for _, after in pairs))
        for name, pairs in by_category.items()
    }
    return {name: pair for name, pair in sorted(means.items()) if pair[1] < pair[0]}


def _pair_answers(
    tasks: Sequence[Task],
    before: Mapping[str, Sequence[Trial]],
    after: Mapping[str, Sequence[Trial]],
    mean_scores: Sequence[Mapping[str, float]],
) -> list[TaskAnswers]:
    return [
        TaskAnswers(
            task.id,
            task.category,
            task.prompt[:MAX_SHOWN_TEXT],
            mean_scores[0].get(task.id),
            mean_scores[1].get(task.id),
            (first_output(before.get(task.id, ())) or "")[:MAX_SHOWN_TEXT],
            (first_output(after.get(task.id, ())) or "")[:MAX_SHOWN_TEXT],
        )
        for task in tasks
    ]
