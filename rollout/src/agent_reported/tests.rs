use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::call::Flaw;
use crate::check::{Captured, Options, check_trial};
use crate::ids::TaskId;
use crate::rollout::{Reward, TrialFacts, rows};
use crate::row::RolloutRow;
use crate::token::TokenId;
use crate::training::TrainingPolicy;

/// The record that Terminus-2 writes after it summarised its context: its own turns, and then the call that wrote the
/// summary.
const TERMINUS: &str = r#"{"n_input_tokens": 9, "cost_usd": null, "metadata": {"n_episodes": 2}, "rollout_details": [
    {"prompt_token_ids": [[1, 2], [1, 2, 3, 4, 5]], "completion_token_ids": [[3, 4], [6]],
     "logprobs": [[-0.5, -0.25], [-0.125]]},
    {"prompt_token_ids": [[1, 2, 3, 4, 7]], "completion_token_ids": [[8, 9]], "logprobs": [[-1.0, -2.0]]}]}"#;

fn trial() -> TrialId {
    TrialId::new("hello__abc").unwrap()
}

fn details(json: &Value) -> Vec<Call> {
    made(rollout_details(json.to_string().as_bytes()).unwrap())
}

fn atif(json: &Value) -> Vec<Call> {
    made(trajectory(json.to_string().as_bytes()).unwrap().segments)
}

fn made(segments: Vec<Segment>) -> Vec<Call> {
    calls(&trial(), Timestamp::UNIX_EPOCH, segments)
}

/// Returns the rows of these calls, which must pass every check against the calls.
fn checked(calls: &[Call]) -> Vec<RolloutRow> {
    let facts = TrialFacts {
        trial_id: trial(),
        task_id: TaskId::new("hello").unwrap(),
        group_id: None,
        group_size: None,
        sample_index: 0,
        attempt: 0,
        agent: None,
        environment: None,
        model: None,
        logprobs_mode: "unknown".to_owned(),
        tokenizer_hash: None,
        vocab_size: None,
        training: TrainingPolicy::default(),
    };
    let rows = rows(&facts, &Reward::default(), calls);
    let captured = Captured::new(calls).training(TrainingPolicy::default());
    assert_eq!(check_trial(&trial(), &rows, Some(&captured), Options::default()), []);
    rows
}

fn flaws(calls: &[Call]) -> Vec<&[Flaw]> {
    calls.iter().map(|call| &*call.flaws).collect()
}

fn step(prompt: &[u32], answer: &[u32]) -> Value {
    let logprobs: Vec<f64> = answer.iter().map(|&id| -f64::from(id) / 8.0).collect();
    let metrics = json!({"prompt_token_ids": prompt, "completion_token_ids": answer, "logprobs": logprobs});
    json!({"step_id": 1, "source": "agent", "message": "hi", "metrics": metrics})
}

fn document(steps: &[Value]) -> Value {
    let agent = json!({"name": "it", "version": "1", "model_name": "policy"});
    json!({"schema_version": "ATIF-v1.8", "agent": agent, "steps": steps})
}

#[test]
fn what_terminus_2_hands_back_becomes_rows() {
    let calls = made(rollout_details(TERMINUS.as_bytes()).unwrap());
    assert_eq!(flaws(&calls), [&[] as &[Flaw]; 3]);
    let rows = checked(&calls);
    let [main, summary] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&*main.token_ids, &*main.loss_mask), (&[1, 2, 3, 4, 5, 6][..], &[0, 0, 1, 1, 0, 1][..]));
    assert_eq!(main.logprobs, [0.0, 0.0, -0.5, -0.25, 0.0, -0.125]);
    assert_eq!(summary.token_ids, [1, 2, 3, 4, 7, 8, 9]);
    assert_eq!(summary.loss_mask, [0, 0, 0, 0, 0, 1, 1], "the shared answer is trained once");
    assert!(rows.iter().all(|row| row.origin.as_deref() == Some("agent")));
    let roles: Vec<_> = summary.calls.iter().map(|span| &*span.role).collect();
    assert_eq!(roles, ["main", "sub_agent"]);
    assert_eq!((main.stop_reason.as_deref(), main.calls[0].temperature), (None, None), "not in the record");
}

#[test]
fn details_are_found_wherever_harbor_keeps_them() {
    let account: Value = serde_json::from_str(TERMINUS).unwrap();
    let expected = details(&account);
    assert_eq!(details(&account["rollout_details"]), expected);
    assert_eq!(
        details(&json!({"trial_name": "x", "agent_result": account, "verifier_result": null})),
        expected
    );
    for nothing in [json!({}), json!([]), json!({"agent_result": null}), json!({"rollout_details": null})] {
        assert_eq!(details(&nothing), [], "{nothing}");
    }
}

#[test]
fn an_incomplete_turn_is_recorded_and_trains_nothing() {
    let of = |prompt: Value, answer: Value, logprobs: Value| {
        let lists =
            json!([{"prompt_token_ids": [prompt], "completion_token_ids": [answer], "logprobs": [logprobs]}]);
        let calls = details(&lists);
        let trained = checked(&calls).iter().any(|row| row.loss_mask.contains(&1));
        (calls[0].flaws.clone(), trained)
    };
    use Flaw::{
        InvalidLogprob, LengthMismatch, MissingLogprobs, MissingPromptIds, MissingTokenIds, Unreadable,
    };
    let lp = json!([-0.5, -0.25]);
    assert_eq!(of(json!([1]), json!([2, 3]), lp.clone()), (vec![], true));
    assert_eq!(of(json!(null), json!([2, 3]), lp.clone()), (vec![MissingPromptIds], false));
    assert_eq!(of(json!([]), json!([2, 3]), lp.clone()), (vec![MissingPromptIds], false));
    assert_eq!(of(json!([1]), json!(null), lp.clone()), (vec![MissingTokenIds, LengthMismatch], false));
    assert_eq!(of(json!([1]), json!([2, 3]), json!(null)), (vec![MissingLogprobs], false));
    assert_eq!(of(json!([1]), json!([2, 3]), json!([])), (vec![MissingLogprobs], false));
    assert_eq!(of(json!([1]), json!([2]), lp.clone()), (vec![LengthMismatch], false));
    assert_eq!(of(json!([-1]), json!([2, 3]), lp.clone()), (vec![MissingPromptIds, Unreadable], false));
    assert_eq!(of(json!([1]), json!([2.5, 3]), lp).0, [MissingTokenIds, Unreadable, LengthMismatch]);
    assert_eq!(of(json!([1]), json!([2, 3]), json!([-0.5, 0.5])), (vec![InvalidLogprob], true));
    assert_eq!(of(json!([1]), json!([2, 3]), json!([null, null])), (vec![InvalidLogprob], false));
}

#[test]
fn lists_of_turns_that_do_not_fit_are_not_laid_beside_each_other() {
    let detail = |prompts: Value, answers: Value, logprobs: Value| {
        details(
            &json!([{"prompt_token_ids": prompts, "completion_token_ids": answers, "logprobs": logprobs}]),
        )
    };
    let two = json!([[1], [1, 2, 3]]);
    let calls = detail(two.clone(), json!([[2], [4]]), json!([[-1.0]]));
    assert_eq!(flaws(&calls), [&[Flaw::LengthMismatch, Flaw::MissingLogprobs]; 2]);
    assert!(checked(&calls).iter().all(|row| !row.trainable_mask.contains(&1)));
    let calls = detail(json!([[1]]), json!([[2], [4]]), json!([[-1.0], [-1.0]]));
    assert_eq!(flaws(&calls), [&[Flaw::LengthMismatch, Flaw::MissingPromptIds]; 2]);
    assert_eq!(checked(&calls), [], "without a prompt there is no sequence");
    let calls = detail(two, json!(null), json!(null));
    assert_eq!(flaws(&calls), [&[Flaw::MissingTokenIds, Flaw::MissingLogprobs]; 2]);
}

#[test]
fn a_trajectory_is_its_steps_with_tokens() {
    let mut copied = step(&[1], &[2]);
    copied["is_copied_context"] = json!(true);
    let mut several = step(&[1, 2, 3, 4], &[5]);
    several["llm_call_count"] = json!(2);
    let mut dispatched = step(&[], &[]);
    (dispatched["llm_call_count"], dispatched["metrics"]) = (json!(0), json!(null));
    let user = json!({"step_id": 1, "source": "user", "message": "do it"});
    let mut named = step(&[1, 2, 3], &[4]);
    named["model_name"] = json!("other");
    let calls = atif(&document(&[user, copied, step(&[1], &[2]), named, dispatched, several]));
    assert_eq!(flaws(&calls), [&[] as &[Flaw], &[], &[Flaw::Unreadable]]);
    let models: Vec<_> = calls.iter().map(|call| &*call.model).collect();
    assert_eq!(models, ["policy", "other", "policy"]);
    let rows = checked(&calls);
    let masks: Vec<_> = rows.iter().map(|row| &row.loss_mask[..]).collect();
    assert_eq!(
        masks,
        [&[0, 1, 0, 0, 0][..], &[0, 0, 0, 1]],
        "the order of samples in the last step is unknown"
    );
}

#[test]
fn sub_agents_stand_after_the_agent_and_files_are_named() {
    let mut root = document(&[step(&[1], &[2])]);
    let mut sub_agent = document(&[step(&[7, 8], &[9])]);
    sub_agent["trajectory_id"] = json!("s");
    sub_agent["schema_version"] = json!("ATIF-v1.7");
    root["subagent_trajectories"] = json!([sub_agent]);
    root["continued_trajectory_ref"] = json!("trajectory.cont-1.json");
    let reference = json!({"trajectory_path": "trajectory.summarization-1-summary.json"});
    root["steps"][0]["observation"] =
        json!({"results": [{"subagent_trajectory_ref": [reference, {"trajectory_id": "s"}]}]});
    let read = trajectory(root.to_string().as_bytes()).unwrap();
    assert_eq!(read.continued_in.as_deref(), Some("trajectory.cont-1.json"));
    assert_eq!(read.sub_agents_in, ["trajectory.summarization-1-summary.json"]);
    let rows = checked(&made(read.segments));
    let told: Vec<_> = rows.iter().map(|row| (&*row.branch_cause, &*row.calls[0].role)).collect();
    assert_eq!(told, [("first_call", "main"), ("sub_agent", "sub_agent")]);
}

#[test]
fn every_version_with_token_metrics_is_read_and_a_later_one_is_not() {
    for minor in 0..=8 {
        let mut root = document(&[step(&[1], &[2])]);
        root["schema_version"] = json!(format!("ATIF-v1.{minor}"));
        assert_eq!(atif(&root).len(), 1);
    }
    for version in ["ATIF-v1.9", "ATIF-v2.0", "ATIF-v1.", "", "1.8"] {
        let mut root = document(&[step(&[1], &[2])]);
        root["schema_version"] = json!(version);
        let error = trajectory(root.to_string().as_bytes()).unwrap_err();
        assert!(error.to_string().contains("not one of ATIF-v1.0 to ATIF-v1.8"), "{error}");
    }
}

#[test]
fn prompts_after_an_image_are_marked() {
    let text = json!([{"type": "text", "text": "x"}]);
    let image = json!([{"type": "image", "source": {"media_type": "image/png", "path": "x.png"}}]);
    let user = |message: &Value| json!({"step_id": 1, "source": "user", "message": message});
    let steps = [user(&text), step(&[1], &[2]), user(&image), step(&[1, 2, 3], &[4])];
    let marked: Vec<_> = atif(&document(&steps)).iter().map(|call| call.has_media).collect();
    assert_eq!(marked, [false, true]);
}

#[test]
fn calls_have_names_in_order_that_no_other_trial_has() {
    let many: Vec<_> = (1..300).map(|n| step(&vec![1; n], &[2])).collect();
    let names: Vec<_> = atif(&document(&many)).into_iter().map(|call| call.call_id).collect();
    assert!(names.is_sorted());
    let long = TrialId::new("x".repeat(127) + "y").unwrap();
    assert!(name(&long, 0).unwrap().as_str().starts_with("agent.xx"));
    assert_ne!(name(&long, 0), name(&TrialId::new("x".repeat(128)).unwrap(), 0));
}

/// Returns a record of three turns in the agent's format.
fn record() -> Vec<Call> {
    let steps = [step(&[1], &[2]), step(&[1, 2, 3], &[4, 5]), step(&[1, 2, 3, 4, 5, 6], &[7])];
    atif(&document(&steps))
}

#[test]
fn equal_records_agree_in_whatever_order() {
    let all = Comparison { captured: 3, returned: 3, same: 3, ..Comparison::default() };
    assert_eq!(compare(&record(), &record()), all);
    let mut other = record();
    other.reverse();
    assert!(compare(&record(), &other).agrees());
}

#[test]
fn the_first_difference_is_placed() {
    let first = |change: fn(&mut Vec<Call>)| {
        let mut other = record();
        change(&mut other);
        let compared = compare(&record(), &other);
        (compared.same, compared.first_difference.as_ref().unwrap().to_string())
    };
    let seen = first(|calls| calls[1].choices[0].token_ids[1] = TokenId::try_from(9).unwrap());
    assert_eq!(seen, (2, "token 1 of the answer of turn 1 is 9, captured turn 1 has 5".to_owned()));
    let seen = first(|calls| calls[2].prompt_token_ids = calls[2].prompt_token_ids.prefix(4));
    assert_eq!(seen, (2, "token 4 of the prompt of turn 2 is nothing, captured turn 2 has 5".to_owned()));
    let seen = first(|calls| calls[0].choices[0].logprobs[0] = None);
    assert_eq!(seen, (3, "logprob 0 of turn 0 is nothing, captured was -0.25".to_owned()));
    let seen = first(|calls| drop(calls.remove(1)));
    assert_eq!(seen, (2, "captured turn 1 was not handed back".to_owned()));
    let seen = first(|calls| calls.push(calls[1].clone()));
    assert_eq!(seen, (3, "turn 3 was not captured".to_owned()));
    let seen = first(|calls| calls[0].prompt_token_ids = Default::default());
    assert_eq!(seen, (2, "turn 0 lacks its prompt or its answer".to_owned()));
}

/// Generates JSON with the expected keys in any nesting, and with numbers that are ids, no ids, or out of range.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..20_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        prop_oneof!["ATIF-v1.[0-9]", "agent", "user", "[a-z]*", ".*"].prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "agent_result",
        "rollout_details",
        "prompt_token_ids",
        "completion_token_ids",
        "logprobs",
        "schema_version",
        "agent",
        "steps",
        "source",
        "metrics",
        "message",
        "observation",
        "results",
        "content",
        "type",
        "subagent_trajectories",
        "subagent_trajectory_ref",
        "trajectory_path",
        "is_copied_context",
        "llm_call_count",
    ]);
    leaf.prop_recursive(6, 60, 6, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((key.clone(), inner), 0..6)
                .prop_map(|pairs| pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        ]
    })
}

fn list() -> impl Strategy<Value = Value> {
    let numbers =
        prop_oneof![9 => (0..9_u32).prop_map(Value::from), 1 => Just(json!(-0.5)), 1 => Just(json!(null))];
    prop_oneof![9 => vec(numbers, 0..5).prop_map(Value::from), 1 => Just(Value::Null), 1 => Just(json!("x"))]
}

proptest! {
    #[test]
    fn no_bytes_break_the_readers(bytes in vec(any::<u8>(), 0..200)) {
        let _ = rollout_details(&bytes);
        let _ = trajectory(&bytes);
    }

    #[test]
    fn no_json_breaks_the_readers(json in any_json()) {
        let text = json.to_string();
        let read = [rollout_details(text.as_bytes()), trajectory(text.as_bytes()).map(|read| read.segments)];
        for segments in read.into_iter().flatten() {
            checked(&made(segments));
        }
    }

    #[test]
    fn whatever_lists_come_their_rows_hold_every_invariant(turns in vec((list(), list(), list()), 0..6), sub in any::<bool>()) {
        let column = |of: fn(&(Value, Value, Value)) -> &Value| turns.iter().map(of).cloned().collect::<Vec<_>>();
        let detail = json!({
            "prompt_token_ids": column(|turn| &turn.0),
            "completion_token_ids": column(|turn| &turn.1),
            "logprobs": column(|turn| &turn.2),
        });
        let of_details = details(&json!(vec![&detail; 1 + usize::from(sub)]));
        checked(&of_details);
        let steps: Vec<_> = turns.iter().map(|(prompt, answer, logprobs)| {
            let metrics = json!({"prompt_token_ids": prompt, "completion_token_ids": answer, "logprobs": logprobs});
            json!({"step_id": 1, "source": "agent", "message": "", "metrics": metrics})
        }).collect();
        let of_steps = atif(&document(&steps));
        checked(&of_steps);
        if !sub {
            let tokens = |calls: &[Call]| -> Vec<_> { calls.iter().map(|call| (call.prompt_token_ids.clone(), call.choices.clone(), call.flaws.clone())).collect() };
            prop_assert_eq!(tokens(&of_details), tokens(&of_steps), "both shapes have the same tokens");
        }
        prop_assert_eq!(compare(&of_steps, &of_steps).same + compare(&of_steps, &of_steps).incomplete, of_steps.len());
    }
}

#[test]
fn fuzz_rollout_details() {
    rolltap_testing::fuzz!("rollout_details", |json| {
        if let Ok(segments) = rollout_details(json) {
            checked(&made(segments));
        }
    });
}

#[test]
fn fuzz_trajectory() {
    rolltap_testing::fuzz!("trajectory", |json| {
        if let Ok(document) = trajectory(json) {
            let calls = made(document.segments);
            checked(&calls);
            let same = compare(&calls, &calls);
            assert_eq!(same.same + same.incomplete, calls.len());
        }
    });
}
