//! Recomputations by a fake server. Those by a real vLLM are in `tests/real`.

mod fake;

use std::fs::File;
use std::time::Duration;

use rolltap_rollout::check::recomputation::{Policy, Reason};
use rolltap_rollout::export::formats::jsonl::JsonlWriter;
use rolltap_rollout::row::RolloutRow;
use serde_json::json;

use self::fake::{Fake, always_busy, busy_at_first, equal, refusing, unequal, without_prompt_logprobs};
use super::*;
use crate::check::sound_rows;

fn settings(server: Address) -> RecomputeSettings {
    RecomputeSettings {
        server,
        api_key: None,
        model: None,
        policy: PolicyChoice::Same,
        bounds: Bounds { token: 0.1, mean: 0.1 },
        rows: None,
        concurrency: NonZeroUsize::new(2).unwrap(),
        report: None,
    }
}

fn file(rows: &[RolloutRow]) -> tempfile::TempPath {
    let file = tempfile::Builder::new().suffix(".jsonl").tempfile().unwrap().into_temp_path();
    let mut lines = JsonlWriter::new(File::create(&file).unwrap());
    rows.iter().for_each(|row| lines.write(row).unwrap());
    lines.finish().unwrap();
    file
}

fn labelled(label: &str) -> Vec<RolloutRow> {
    let mut rows = sound_rows("one");
    rows[0].version_labels.insert("0".to_owned(), label.to_owned());
    rows
}

async fn recomputed(
    rows: &[RolloutRow],
    settings: RecomputeSettings,
) -> (Result<Recomputed, RecomputeError>, Vec<String>) {
    let file = file(rows);
    let mut told = Vec::new();
    let mut recomputation = match Recomputation::prepare(&file, settings).await {
        Ok(recomputation) => recomputation,
        Err(error) => return (Err(error), told),
    };
    recomputation.server = recomputation.server.waiting(vec![Duration::from_millis(1); 3]);
    let recomputed = recomputation.run(|line| told.push(line.to_owned())).await;
    (recomputed, told)
}

async fn refusal(rows: &[RolloutRow], settings: RecomputeSettings) -> Refusal {
    match recomputed(rows, settings).await.0.unwrap_err() {
        RecomputeError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    }
}

/// Returns the messages of an error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said += &format!(": {error}");
        cause = error.source();
    }
    said
}

#[tokio::test]
async fn equal_logprobs_pass_and_are_asked_for_in_vllms_terms() {
    let (fake, address) = Fake::answering(equal).start().await;
    let rows = [sound_rows("one"), sound_rows("two")].concat();
    let (result, told) = recomputed(&rows, settings(address)).await;
    let result = result.unwrap();
    assert!(result.is_within() && told.is_empty(), "{told:?}");
    assert_eq!((result.all().rows, result.all().tokens, result.all().largest), (2, 4, 0.0));
    let asked = fake.asked.lock().unwrap();
    let expected = json!({"model": "m", "prompt": [1, 2, 3, 4, 5], "max_tokens": 1, "prompt_logprobs": 0,
        "temperature": 1.0, "stream": false});
    assert_eq!(asked[..], [expected.clone(), expected]);
    assert!(result.to_string().contains("weights without a name: 2 of 2 rows\n"), "{result}");
}

#[tokio::test]
async fn rows_beyond_a_bound_are_named_up_to_a_limit() {
    let (_, address) = Fake::answering(unequal).start().await;
    let rows: Vec<_> = (0..NAMED_ROWS + 3).flat_map(|n| sound_rows(&format!("trial-{n}"))).collect();
    let (result, told) = recomputed(&rows, settings(address)).await;
    let result = result.unwrap();
    assert_eq!((result.beyond(), told.len() as u64, result.is_within()), (NAMED_ROWS + 3, NAMED_ROWS, false));
    let expected = "trial trial-0, branch 0: recomputed: mean difference 5.00e-1 over 2 tokens, largest 1.00e0 at \
                    token_ids[3]: captured -0.5, recomputed -1.5";
    assert_eq!(told[0], expected);
    assert!(result.to_string().starts_with("3 more rows are beyond a bound or refused\n"), "{result}");
    let (policy, figures) = result.policies().next().unwrap();
    assert_eq!((policy, figures.kl_k1()), (&Policy::Unnamed(0), 0.5));
}

#[tokio::test]
async fn the_report_has_a_line_per_row_and_appears_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recompute.jsonl");
    let with_report = |server| RecomputeSettings { report: Some(path.clone()), ..settings(server) };
    let rows = [sound_rows("one"), sound_rows("two")].concat();

    let (_, address) = Fake::answering(always_busy).start().await;
    recomputed(&rows, with_report(address)).await.0.unwrap_err();
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "a check that fails leaves nothing");

    let (_, address) = Fake::answering(unequal).with_weights(&["w"]).start().await;
    recomputed(&rows, with_report(address.clone())).await.0.unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.lines().map(|line| RecomputedRow::parse(line.as_bytes()).unwrap()).collect();
    let trials: Vec<_> = lines.iter().map(|line| line.trial_id.as_str()).collect();
    assert_eq!(trials, ["one", "two"]);
    let RecomputedRow { positions, captured, recomputed: again, weights, model, .. } = &lines[0];
    assert_eq!((positions.as_slice(), captured.as_slice()), (&[3, 4][..], &[-0.5, -0.25][..]));
    assert_eq!(again, &[Some(-1.5), Some(-0.25)]);
    assert_eq!((weights.as_deref(), model.as_str(), lines[0].token_bound), (Some("w"), "m", 0.1));

    let error = recomputed(&rows, with_report(address)).await.0.unwrap_err();
    assert!(error.to_string().contains("exists already"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

#[tokio::test]
async fn a_busy_server_is_asked_again_and_a_dead_one_ends_the_check() {
    let (fake, address) = Fake::answering(busy_at_first).start().await;
    let (result, _) = recomputed(&sound_rows("one"), settings(address)).await;
    assert!(result.unwrap().is_within());
    assert_eq!(fake.asked.lock().unwrap().len(), 3);

    let (fake, address) = Fake::answering(always_busy).start().await;
    let (result, _) = recomputed(&sound_rows("one"), settings(address)).await;
    let said = chain(&result.unwrap_err());
    assert!(said.starts_with("trial one, branch 0, 5 token ids sent: POST http://127.0.0.1:"), "{said}");
    assert!(said.ends_with("/v1/completions: answered 500: the engine is dead"), "{said}");
    assert_eq!(fake.asked.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_refused_prompt_names_its_row_and_a_server_without_prompt_logprobs_ends_the_check() {
    let (_, address) = Fake::answering(refusing).start().await;
    let (result, told) = recomputed(&sound_rows("one"), settings(address)).await;
    let result = result.unwrap();
    assert_eq!((result.refused(), result.is_within()), (1, false));
    let expected = "trial one, branch 0: recomputed: the server refuses these 5 token ids: Token id 5 is out of \
                    vocabulary";
    assert_eq!(told, [expected]);

    let (_, address) = Fake::answering(without_prompt_logprobs).start().await;
    let (result, _) = recomputed(&sound_rows("one"), settings(address)).await;
    let said = chain(&result.unwrap_err());
    assert!(said.starts_with("trial one, branch 0, 5 token ids sent: POST "), "{said}");
    assert!(said.contains("the answer has no choices[0].prompt_logprobs"), "{said}");
}

#[tokio::test]
async fn another_model_is_refused_unless_it_is_chosen() {
    let (fake, address) = Fake::answering(equal).start().await;
    let mut rows = sound_rows("one");
    rows[0].calls[0].model = Some("gone".to_owned());
    let said = refusal(&rows, settings(address.clone())).await.to_string();
    assert!(
        said.contains(r#"does not serve model "gone" of the rows but "m", "other": give --recompute-model"#),
        "{said}"
    );
    let with = |model: &str| RecomputeSettings { model: Some(model.to_owned()), ..settings(address.clone()) };
    assert!(matches!(refusal(&rows, with("none")).await, Refusal::ChosenModel { .. }));
    // The advice of the refusal works.
    assert!(recomputed(&rows, with("other")).await.0.unwrap().is_within());
    assert_eq!(fake.asked.lock().unwrap()[0]["model"], "other");
}

#[tokio::test]
async fn weights_of_another_name_are_refused_unless_any_version_may_be_compared() {
    let (_, address) = Fake::answering(equal).with_weights(&["16"]).start().await;
    let said = refusal(&labelled("17"), settings(address.clone())).await.to_string();
    assert!(said.contains(r#"the rows are of policy version "17", and "#), "{said}");
    assert!(said.contains(r#"names its weights "16" (/weight_info)"#), "{said}");
    let any = RecomputeSettings { policy: PolicyChoice::Any, ..settings(address.clone()) };
    assert!(recomputed(&labelled("17"), any).await.0.unwrap().is_within());
    assert!(recomputed(&labelled("16"), settings(address)).await.0.unwrap().is_within());
}

#[tokio::test]
async fn rows_of_several_versions_need_a_choice() {
    let (_, address) = Fake::answering(unequal).start().await;
    let mut rows = [labelled("9"), sound_rows("two")].concat();
    rows[1].version_labels.insert("0".to_owned(), "10".to_owned());
    let said = refusal(&rows, settings(address.clone())).await.to_string();
    assert!(
        said.starts_with("the rows are of several policy versions: 9: 2 tokens, 10: 2 tokens; "),
        "{said}"
    );
    let only = |label: &str| RecomputeSettings {
        policy: PolicyChoice::Only(label.to_owned()),
        ..settings(address.clone())
    };
    let (result, told) = recomputed(&rows, only("10")).await;
    let result = result.unwrap();
    assert_eq!((result.all().rows, result.left_out()), (1, &LeftOut::from([(Reason::OtherPolicy, 2)])));
    assert!(told[0].starts_with("trial two, "), "{told:?}");
    assert!(matches!(refusal(&rows, only("11")).await, Refusal::UnknownVersion { .. }));
    let any = RecomputeSettings { policy: PolicyChoice::Any, ..settings(address) };
    let result = recomputed(&rows, any).await.0.unwrap();
    let rows: Vec<_> =
        result.policies().map(|(policy, figures)| (policy.to_string(), figures.rows)).collect();
    assert_eq!(rows, [("9".to_owned(), 1), ("10".to_owned(), 1)]);
}

#[tokio::test]
async fn weights_that_change_meanwhile_are_an_error() {
    let (_, address) = Fake::answering(equal).with_weights(&["16", "17"]).start().await;
    let (result, _) = recomputed(&sound_rows("one"), settings(address)).await;
    assert!(matches!(result, Err(RecomputeError::WeightsChanged { .. })), "{result:?}");
}

#[tokio::test]
async fn a_sample_of_rows_is_spread_evenly() {
    let (fake, address) = Fake::answering(equal).start().await;
    let mut rows: Vec<_> = (0..10).flat_map(|n| sound_rows(&format!("trial-{n}"))).collect();
    for (row, id) in rows.iter_mut().zip(10..) {
        row.token_ids[0] = id;
    }
    let sample = RecomputeSettings { rows: NonZeroU64::new(3), ..settings(address) };
    assert_eq!(recomputed(&rows, sample).await.0.unwrap().all().rows, 3);
    let asked = fake.asked.lock().unwrap();
    let mut first: Vec<_> = asked.iter().map(|asked| asked["prompt"][0].as_i64().unwrap()).collect();
    first.sort_unstable();
    assert_eq!(first, [13, 16, 19]);
}

#[tokio::test]
async fn tokens_beyond_the_context_are_not_sent() {
    let (fake, address) = Fake::answering(equal).start().await;
    let mut rows = sound_rows("one");
    let row = &mut rows[0];
    // The row has 8 tokens, as many as the server's context, and one of them must be free for its answer.
    row.token_ids.splice(0..3, [1, 2, 3, 7, 7, 7]);
    for mask in [&mut row.sampled_mask, &mut row.trainable_mask, &mut row.loss_mask] {
        mask.splice(0..0, [0; 3]);
    }
    row.logprobs.splice(0..0, [0.0; 3]);
    row.token_version.splice(0..0, [-1; 3]);
    (row.calls[0].start, row.calls[0].end) = (6, 8);
    let result = recomputed(&rows, settings(address)).await.0.unwrap();
    assert_eq!((result.all().tokens, result.left_out()), (1, &LeftOut::from([(Reason::Context, 1)])));
    assert_eq!(fake.asked.lock().unwrap()[0]["prompt"], json!([1, 2, 3, 7, 7, 7, 4]));
}

#[tokio::test]
async fn rows_without_a_comparable_token_are_nothing_to_compare() {
    let (_, address) = Fake::answering(equal).start().await;
    let mut rows = sound_rows("one");
    rows[0].logprobs_mode = "unknown".to_owned();
    let said = refusal(&rows, settings(address.clone())).await.to_string();
    assert_eq!(said, "no logprob can be recomputed: 2 trained tokens of rows with an unknown logprobs_mode");
    assert!(matches!(refusal(&[], settings(address)).await, Refusal::Nothing(_)));
}

#[tokio::test]
async fn the_api_key_is_sent_and_a_server_that_refuses_it_is_named() {
    let (_, address) = Fake::answering(equal).with_api_key("sk-right").start().await;
    let with = |key: &str| RecomputeSettings { api_key: Some(key.to_owned()), ..settings(address.clone()) };
    assert!(recomputed(&sound_rows("one"), with("sk-right")).await.0.unwrap().is_within());
    let said = chain(&recomputed(&sound_rows("one"), with("sk-wrong")).await.0.unwrap_err());
    assert!(said.ends_with("/v1/models: answered 401: "), "{said}");
}

#[tokio::test]
async fn an_absent_server_is_named() {
    let address = "http://127.0.0.1:9".parse().unwrap();
    let said = chain(&recomputed(&sound_rows("one"), settings(address)).await.0.unwrap_err());
    assert!(
        said.starts_with("GET http://127.0.0.1:9/v1/models: no answer; is vLLM running at this address?"),
        "{said}"
    );
}
