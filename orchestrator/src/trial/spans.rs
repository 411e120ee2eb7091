//! The spans of a trial: the whole trial and its phases. They are made from the times of its outcome.

use rolltap_proxy::traces::{Span, SpanPlace, Tracer};

use super::{Round, StepOutcome, Timing, TrialOutcome, TrialPlan};

/// Returns the place of a trial's span, which the proxy continues.
pub(crate) fn place(tracer: &Tracer, plan: &TrialPlan) -> SpanPlace {
    tracer.root(&["job trial", &plan.id.to_string()])
}

/// Records the spans of a trial that has ended.
pub(crate) fn record(tracer: &Tracer, job: &str, plan: &TrialPlan, outcome: &TrialOutcome) {
    let place = place(tracer, plan);
    tracer.record(place, || {
        let mut spans = vec![whole(place, job, plan, outcome)];
        spans.extend(phase(place, "environment", None, outcome.environment_setup));
        spans.extend(phase(place, "agent setup", None, outcome.agent_setup));
        let round = Round {
            agent_execution: outcome.agent_execution,
            verifier: outcome.verifier,
            ..Round::default()
        };
        spans.extend(of_round(place, plan, None, &round));
        for StepOutcome { name, round } in &outcome.steps {
            spans.extend(of_round(place, plan, Some(name), round));
        }
        spans
    });
}

fn whole(place: SpanPlace, job: &str, plan: &TrialPlan, outcome: &TrialOutcome) -> Span {
    let calls = outcome.status.as_ref().and_then(|status| i64::try_from(status.calls.total).ok());
    let mut span = Span::new(place, None, "trial", outcome.started_at, outcome.finished_at)
        .with_text("rolltap.job", job)
        .with_text("rolltap.trial.id", outcome.name.as_str())
        .with_text("rolltap.task.id", outcome.task_id.as_str())
        .with_text("rolltap.group.id", outcome.group_id.as_str())
        .with("rolltap.sample_index", i64::from(outcome.sample_index))
        .with("rolltap.attempt", i64::from(outcome.attempt))
        .with_text("gen_ai.agent.name", plan.agent.spec.name())
        .with_known("rolltap.calls", calls)
        .with_known("rolltap.reward", outcome.reward)
        .with("rolltap.reward.valid", outcome.reward_is_valid())
        .with("rolltap.awaits_retry", outcome.awaits_retry);
    if let Some(model) = &plan.agent.model {
        span = span.with_text("gen_ai.request.model", model);
    }
    match &outcome.failure {
        Some(failure) => {
            let phase = failure.phase.to_string();
            span.with_text("rolltap.failure.phase", &phase).failed(failure.cause.name())
        }
        None => span,
    }
}

fn of_round(place: SpanPlace, plan: &TrialPlan, step: Option<&str>, round: &Round) -> Vec<Span> {
    let agent = phase(place, "invoke_agent", step, round.agent_execution).map(|span| {
        span.with("gen_ai.operation.name", "invoke_agent")
            .with_text("gen_ai.agent.name", plan.agent.spec.name())
    });
    agent.into_iter().chain(phase(place, "verifier", step, round.verifier)).collect()
}

/// Returns the span of a phase. `None` if the phase did not end.
fn phase(of: SpanPlace, name: &'static str, step: Option<&str>, timing: Option<Timing>) -> Option<Span> {
    let Timing { started_at, finished_at } = timing?;
    let place = of.child(&[name, step.unwrap_or_default()]);
    let span = Span::new(place, Some(of), name, started_at, finished_at);
    Some(match step {
        Some(step) => span.with_text("rolltap.step", step),
        None => span,
    })
}
