//! The prompt of a call, and the proofs for kinds of requests.

use rolltap_rollout::branch_cause::BranchCause;
use rolltap_rollout::continuation::Continuation;

use super::*;
use crate::common::history::History;
use crate::common::metrics::FlawCounts;
use crate::common::metrics::Metrics;
use crate::common::redaction::Redaction;
use crate::prefix::request_kind::RequestKind;
use crate::prefix::{ExactPrefix, Plan};
use crate::render::tests::fixture_dir;
use crate::store::{OpenedStore, Store, StoreSettings};
use crate::upstream::Pool;
use crate::upstream::PoolSettings;
use crate::upstream::policy::Policy;
use crate::wire::chat_outline::ChatOutline;

/// A proxy's exact prefix and one of its trials. Their server renders as the fixture does, and no connection leads to
/// it.
struct Stage {
    prefix: Arc<ExactPrefix>,
    memory: Memory,
    model: Model,
    _data: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        Self::with(RenderSettings { tokenizer: Some(fixture_dir()), ..RenderSettings::default() })
    }

    fn with(settings: RenderSettings) -> Self {
        let data = tempfile::tempdir().unwrap();
        let OpenedStore { store, .. } = Store::open(data.path(), StoreSettings::default()).unwrap();
        let policy = Arc::new(Policy::restored(&[]));
        let patience = std::time::Duration::from_secs(1);
        let pool = Pool::start(
            Vec::new(),
            PoolSettings::default(),
            patience,
            policy,
            store.clone(),
            FlawCounts::default(),
        )
        .unwrap();
        Self {
            prefix: ExactPrefix::start(settings, pool, store, Arc::new(Metrics::new())).unwrap(),
            memory: Memory::default(),
            model: Model::fixture(),
            _data: data,
        }
    }

    async fn plan(&self, body: &Value, has_media: bool) -> Plan {
        self.try_plan(body, has_media).await.unwrap()
    }

    async fn try_plan(&self, body: &Value, has_media: bool) -> Option<Plan> {
        let (trial, body) = (TrialId::new("t").unwrap(), body.to_string());
        let request = ChatOutline::scan(&body).unwrap();
        self.prefix.plan(&trial, &self.memory, &request, History::Faithful, has_media).await
    }

    /// Plans and answers one call. The server takes the planned ids, or else the prompt is `prompt`.
    async fn call(&self, body: &Value, has_media: bool, prompt: &[TokenId], answer: &str) -> Continuation {
        let plan = self.plan(body, has_media).await;
        let continuation = plan.continuation.clone();
        let prompt = plan.ids.as_ref().map_or(prompt.to_vec(), ids_of);
        let (call, said) = answered(&prompt, vec![self.model.plain_answer(answer)]);
        plan.answered(&self.memory, &call, said, &Redaction::default());
        continuation
    }

    /// Returns the server's prompt for these messages.
    fn prompt(&self, messages: &[Value]) -> Vec<TokenId> {
        self.model.encode(&self.model.text(messages, &RequestInputs::default()))
    }

    /// Returns whether such requests are turned off. Polls until the proof is done.
    async fn is_taken_off(&self, messages_of_it: &[Value]) -> bool {
        let body = chat(messages_of_it).to_string();
        let inputs = PromptRequest::read(&body).unwrap().inputs;
        let shape = RequestKind::of(&messages(messages_of_it), &inputs.read());
        for _ in 0..200 {
            if self.prefix.trust.is_off(&shape, &TrialId::new("another").unwrap()) {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        false
    }
}

fn word(continuation: &Continuation) -> &'static str {
    match continuation {
        Continuation::Spliced { .. } => "spliced",
        other => other.cause().unwrap().as_str(),
    }
}

#[tokio::test]
async fn turns_are_spliced_one_after_the_other() {
    let stage = Stage::new();
    let mut talk = vec![user("a")];
    let prompt = stage.prompt(&talk);
    assert_eq!(word(&stage.call(&chat(&talk), false, &prompt, "Hello the").await), "first_call");
    for _ in 0..3 {
        talk.extend([assistant("Hello the"), user("c")]);
        assert_eq!(word(&stage.call(&chat(&talk), false, &[], "Hello the").await), "spliced");
    }
}

#[tokio::test]
async fn an_answer_that_the_agent_changed_is_named_edited() {
    let stage = Stage::new();
    let mut talk = vec![user("a")];
    let prompt = stage.prompt(&talk);
    stage.call(&chat(&talk), false, &prompt, "Hello the").await;
    talk.extend([assistant("Hello the"), user("b")]);
    stage.call(&chat(&talk), false, &[], "Hello the").await;
    let parallel = stage.plan(&chat(&talk), false).await.continuation;
    assert_eq!(parallel.cause(), None, "the same turn once more");
    talk.extend([assistant("Hello the client filled this in"), user("c")]);
    let edited = stage.plan(&chat(&talk), false).await.continuation;
    assert_eq!((word(&edited), edited.cause()), ("spliced", Some(BranchCause::HistoryEdited)));
}

#[tokio::test]
async fn a_kind_of_request_that_fails_its_first_proof_is_off_and_others_stay() {
    let stage = Stage::new();
    let parts = |text: &str| json!({"role": "user", "content": [{"type": "text", "text": text}]});
    // This server renders lists of parts differently.
    let wrong = stage.model.encode("<|im_start|>user\n[parts]<|im_end|>\n<|im_start|>assistant\n");
    stage.call(&chat(&[parts("a")]), false, &wrong, "Hello").await;
    assert!(stage.is_taken_off(&[parts("a"), assistant("Hello")]).await);
    let next = chat(&[parts("a"), assistant("Hello"), parts("c")]);
    assert_eq!(word(&stage.plan(&next, false).await.continuation), "unproven");

    let plain = stage.prompt(&[user("b")]);
    stage.call(&chat(&[user("b")]), false, &plain, "Hello").await;
    let next = chat(&[user("b"), assistant("Hello"), user("c")]);
    assert_eq!(word(&stage.plan(&next, false).await.continuation), "spliced");
    // A proven start of the conversation does not help a request whose kind is off.
    let next = chat(&[user("b"), assistant("Hello"), parts("c")]);
    assert_eq!(word(&stage.plan(&next, false).await.continuation), "unproven");
}

#[tokio::test]
async fn the_difference_of_a_kind_is_reported_with_the_remedy_for_it() {
    let stage = Stage::new();
    let plain = stage.prompt(&[user("a")]);
    stage.call(&chat(&[user("a")]), false, &plain, "Hello").await;
    assert_eq!(stage.prefix.refuted_kinds().await, []);
    let other = stage.prompt(&[system("b")]);
    stage.call(&chat(&[system("a")]), false, &other, "Hello").await;
    // The template of this server takes calls without a name, and the one here raises an exception.
    let mut unnamed = calling(&["{}"]);
    unnamed["tool_calls"][0]["function"]["name"] = json!(1);
    stage.call(&chat(&[user("a"), unnamed, tool("b")]), false, &plain, "Hello").await;
    let refuted = stage.prefix.refuted_kinds().await;
    let [unrendered, other] = refuted.as_slice() else { panic!("{refuted:?}") };
    assert_eq!(other.requests, "assistant, system");
    assert!(other.remedy.contains("--chat-template") && other.remedy.contains("--tokenizer"), "{other:?}");
    assert_eq!(unrendered.requests, "assistant, assistant.tool_calls, tool, user");
    assert!(unrendered.reason.contains("cannot be rendered"), "{unrendered:?}");
    assert!(!unrendered.remedy.contains("--tokenizer"), "{unrendered:?}");
}

/// For example, a server normalises one text differently, in one of many trials.
#[tokio::test]
async fn one_odd_request_turns_exact_prefix_off_for_its_own_trial_alone() {
    let stage = Stage::new();
    for number in 0..10 {
        let first = user(&format!("question {number}"));
        let prompt = stage.prompt(std::slice::from_ref(&first));
        stage.call(&chat(std::slice::from_ref(&first)), false, &prompt, "Hello").await;
        let next = chat(&[first, assistant("Hello"), user("c")]);
        assert_eq!(word(&stage.plan(&next, false).await.continuation), "spliced", "proven");
    }
    let odd = stage.prompt(&[user("e\u{301}")]);
    stage.call(&chat(&[user("\u{e9}")]), false, &odd, "Hello").await;
    let next = chat(&[user("\u{e9}"), assistant("Hello"), user("c")]);
    assert_eq!(word(&stage.plan(&next, false).await.continuation), "unproven", "the odd one");
    assert!(
        !stage.prefix.trust.is_off(&RequestKind::named("assistant, user"), &TrialId::new("another").unwrap())
    );
}

#[tokio::test]
async fn prompts_that_are_no_plain_rendering_prove_nothing() {
    let stage = Stage::new();
    let elsewise = stage.model.encode("<|im_start|>user\na<|im_end|>\n");
    let mut open = chat(&[user("a")]);
    open["add_generation_prompt"] = json!(false);
    stage.call(&open, false, &elsewise, "Hello").await;
    stage.call(&chat(&[user("look")]), true, &elsewise, "Hello").await;
    for first in ["a", "look"] {
        let next = chat(&[user(first), assistant("Hello"), user("c")]);
        assert_eq!(word(&stage.plan(&next, false).await.continuation), "unproven");
    }
    let plain = stage.prompt(&[user("b")]);
    stage.call(&chat(&[user("b")]), false, &plain, "Hello").await;
    let next = chat(&[user("b"), assistant("Hello"), user("c")]);
    assert_eq!(word(&stage.plan(&next, false).await.continuation), "spliced", "the kind is not taken off");
}

#[tokio::test]
async fn the_reason_against_ids_is_recorded() {
    let stage = Stage::new();
    let prompt = stage.prompt(&[user("a")]);
    stage.call(&chat(&[user("a")]), false, &prompt, "Hello").await;
    let next = chat(&[user("a"), assistant("Hello"), user("c")]);
    for (more, has_media, cause) in [
        (json!({"echo": true}), false, "unproven"),
        (json!({}), true, "unproven"),
        (json!({}), false, "spliced"),
    ] {
        let mut body = next.clone();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let plan = stage.plan(&body, has_media).await;
        assert_eq!((word(&plan.continuation), plan.ids.is_some()), (cause, cause == "spliced"), "{more}");
    }
    let mut refused = stage.plan(&next, false).await;
    refused.ids_were_refused();
    assert_eq!((word(&refused.continuation), refused.ids.is_some()), ("upstream_unable", false));
}

#[tokio::test]
async fn without_a_tokenizer_nothing_is_spliced() {
    let stage = Stage::with(RenderSettings::default());
    let prompt = stage.prompt(&[user("a")]);
    stage.call(&chat(&[user("a")]), false, &prompt, "Hello").await;
    let next = chat(&[user("a"), assistant("Hello"), user("c")]);
    assert_eq!(word(&stage.plan(&next, false).await.continuation), "unproven");
    // The tokenizer is found later: the server reports the model's directory.
    assert!(stage.prefix.ready(Some(fixture_dir())).await.is_some());
    assert_eq!(word(&stage.plan(&next, false).await.continuation), "spliced");
}

#[tokio::test]
async fn a_sealed_trial_plans_nothing() {
    let stage = Stage::new();
    stage.memory.close();
    assert!(stage.try_plan(&chat(&[user("a")]), false).await.is_none());
}
