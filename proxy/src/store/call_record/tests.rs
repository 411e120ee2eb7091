//! Any trial's calls come back as they were, whatever they have in common.

use jiff::Timestamp;
use proptest::prelude::*;
use rolltap_rollout::call::{CallRole, CallStatus, Dialect, Flaw, Sampling, VersionSpan};
use rolltap_rollout::ids::{CallId, TrialId};
use serde_json::json;

use super::*;

fn call(prompt: &[u32], answers: Vec<(Vec<u32>, Vec<Option<f32>>)>) -> Call {
    let ids = |ids: &[u32]| ids.iter().map(|&id| TokenId::try_from(id).unwrap()).collect::<Vec<_>>();
    let choice = |(index, (answer, logprobs)): (usize, (Vec<u32>, Vec<Option<f32>>))| Choice {
        index: index as u32,
        token_ids: ids(&answer),
        logprobs: logprobs.into_iter().map(|value| Logprob::try_from(value?).ok()).collect(),
        finish_reason: Some("stop".into()),
        stop_reason: Some(json!(7)),
        versions: vec![VersionSpan { start: 1, version: 4 }],
    };
    Call {
        call_id: CallId::generate(),
        trial_id: TrialId::new("t").unwrap(),
        dialect: Dialect::Messages,
        model: "m".into(),
        status: CallStatus::Failed,
        role: CallRole::Main,
        continuation: None,
        prompt_token_ids: ids(prompt).into(),
        choices: answers.into_iter().enumerate().map(choice).collect(),
        sampling: Sampling {
            params: json!({"stop": ["x"]}).as_object().unwrap().clone(),
            ..Sampling::default()
        },
        policy_version: -3,
        straddles_versions: true,
        version_labels: [(4, "four".to_owned())].into(),
        upstream: Some("u".into()),
        has_media: true,
        flaws: vec![Flaw::Unreadable],
        http_status: Some(500),
        error: Some("e".into()),
        started_at: Timestamp::UNIX_EPOCH,
        first_token_at: Some(Timestamp::UNIX_EPOCH),
        ended_at: Timestamp::UNIX_EPOCH,
    }
}

fn of(bytes: &[u8], earlier: impl FnOnce(u64) -> Option<Arc<Call>>) -> Result<Call, String> {
    let mut numbers = Numbers::of(bytes);
    let call = read(&mut numbers, Format::V2, earlier)?;
    if numbers.is_empty() { Ok(call) } else { Err("more than a call".to_owned()) }
}

#[test]
fn a_turn_is_written_as_what_is_new_in_it() {
    let first = call(&[1; 4000], vec![(vec![5; 200], vec![Some(-0.5); 200])]);
    let next = [vec![1; 4000], vec![5; 200], vec![6; 10]].concat();
    let next = call(&next, vec![(vec![7; 3], vec![])]);
    let shared = Shared::between(&next, &first);
    assert_eq!(shared, Shared { of_prompt: 4000, of_answer: 200, choice: 0 });
    let mut bytes = Vec::new();
    write(&next, Some((9, shared)), &mut bytes).unwrap();
    assert!(bytes.len() < 1000);
    let earlier = Arc::new(first);
    assert_eq!(of(&bytes, |distance| (distance == 9).then(|| Arc::clone(&earlier))), Ok(next));
    assert!(of(&bytes, |_| None).unwrap_err().contains("9 bytes before"));
}

fn any_call() -> impl Strategy<Value = Call> {
    let ids = || prop::collection::vec(prop_oneof![0..3_u32, any::<u32>().prop_map(|id| id >> 1)], 0..6);
    let logprob = prop::option::of(any::<f32>().prop_map(|value| -value.abs()));
    let answers = prop::collection::vec((ids(), prop::collection::vec(logprob, 0..6)), 0..3);
    (ids(), answers).prop_map(|(prompt, answers)| call(&prompt, answers))
}

proptest! {
    #[test]
    fn what_is_written_is_read(call in any_call(), earlier in any_call()) {
        let earlier = Arc::new(earlier);
        let shared = Shared::between(&call, &earlier);
        for builds_on in [None, Some((4, shared))] {
            let mut bytes = Vec::new();
            write(&call, builds_on, &mut bytes).unwrap();
            let read = of(&bytes, |_| Some(Arc::clone(&earlier))).unwrap();
            prop_assert_eq!(&read, &call);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), cut in any::<prop::sample::Index>()) {
        let earlier = Arc::new(call(&[1, 2], vec![]));
        let _ = of(&bytes, |_| Some(Arc::clone(&earlier)));
        let mut sound = Vec::new();
        write(&earlier, None, &mut sound).unwrap();
        prop_assert!(of(&sound[..cut.index(sound.len())], |_| None).is_err());
    }
}
