//! The calls of any trial are read back unchanged, whatever they share.

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
        served_model: Some("s".into()),
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

/// The parts of a written call: its name, its body, its logprobs.
#[derive(Default)]
struct Written {
    name: Option<CallId>,
    body: Vec<u8>,
    planes: Planes,
}

fn written(call: &Call, earlier: Option<(u64, Shared)>) -> Written {
    let mut written = Written::default();
    let small = write(call, earlier, &mut written.body, &mut written.planes).unwrap();
    written.name = (!is_named(&written.body[small])).then(|| call.call_id.clone());
    written
}

fn of(
    body: &[u8],
    Written { name, planes, .. }: &Written,
    earlier: impl FnOnce(u64) -> Option<Arc<Call>>,
) -> Result<Call, String> {
    let mut numbers = Numbers::of(body);
    let call = read(&mut numbers, Apart::V3(name.clone(), planes.taking()), earlier)?;
    if numbers.is_empty() { Ok(call) } else { Err("more than a call".to_owned()) }
}

#[test]
fn a_turn_is_written_as_what_is_new_in_it() {
    let first = call(&[1; 4000], vec![(vec![5; 200], vec![Some(-0.5); 200])]);
    let next = [vec![1; 4000], vec![5; 200], vec![6; 10]].concat();
    let next = call(&next, vec![(vec![7; 3], vec![])]);
    let shared = Shared::between(&next, &first);
    assert_eq!(shared, Shared { of_prompt: 4000, of_answer: 200, choice: 0 });
    let bytes = written(&next, Some((9, shared)));
    assert!(bytes.body.len() < 1000);
    let earlier = Arc::new(first);
    let found = |distance| (distance == 9).then(|| Arc::clone(&earlier));
    assert_eq!(of(&bytes.body, &bytes, found), Ok(next));
    assert!(of(&bytes.body, &bytes, |_| None).unwrap_err().contains("9 bytes before"));
}

fn any_call() -> impl Strategy<Value = Call> {
    let ids = || prop::collection::vec(prop_oneof![0..3_u32, any::<u32>().prop_map(|id| id >> 1)], 0..6);
    let logprob = prop::option::of(any::<f32>().prop_map(|value| -value.abs()));
    let answers = prop::collection::vec((ids(), prop::collection::vec(logprob, 0..6)), 0..3);
    (ids(), answers, any::<bool>()).prop_map(|(prompt, answers, is_named_by_us)| {
        let mut call = call(&prompt, answers);
        if !is_named_by_us {
            call.call_id = CallId::new("of-somebody-else").unwrap();
        }
        call
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read(call in any_call(), earlier in any_call()) {
        let earlier = Arc::new(earlier);
        let shared = Shared::between(&call, &earlier);
        for builds_on in [None, Some((4, shared))] {
            let bytes = written(&call, builds_on);
            let read = of(&bytes.body, &bytes, |_| Some(Arc::clone(&earlier))).unwrap();
            prop_assert_eq!(&read, &call);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..60), cut in any::<prop::sample::Index>()) {
        let earlier = Arc::new(call(&[1, 2], vec![]));
        let sound = written(&earlier, None);
        let _ = of(&bytes, &sound, |_| Some(Arc::clone(&earlier)));
        for apart in [Apart::V1, Apart::V2] {
            let _ = read(&mut Numbers::of(&bytes), apart, |_| Some(Arc::clone(&earlier)));
        }
        prop_assert!(of(&sound.body[..cut.index(sound.body.len())], &sound, |_| None).is_err());
    }
}

#[test]
fn fuzz_call_record() {
    static EARLIER: std::sync::LazyLock<Arc<Call>> =
        std::sync::LazyLock::new(|| Arc::new(call(&[1, 2, 3], vec![(vec![4, 5], vec![Some(-0.5), None])])));
    rolltap_testing::fuzz!("call_record", |bytes| {
        let Some((format, bytes)) = bytes.split_first() else { return };
        let mut numbers = Numbers::of(bytes);
        let name = (format & 4 == 0).then(|| EARLIER.call_id.clone());
        let earlier = |distance: u64| (distance == 1).then(|| Arc::clone(&EARLIER));
        let call = match format % 4 {
            0 => read(&mut numbers, Apart::V1, earlier),
            1 => read(&mut numbers, Apart::V2, earlier),
            _ => {
                let Some(planes) = Planes::read(&mut numbers) else { return };
                read(&mut numbers, Apart::V3(name, planes.taking()), earlier)
            }
        };
        let Ok(call) = call else { return };
        for builds_on in [None, Some((1, Shared::between(&call, &EARLIER)))] {
            let bytes = written(&call, builds_on);
            assert_eq!(of(&bytes.body, &bytes, earlier).as_ref(), Ok(&call));
        }
    });
}
