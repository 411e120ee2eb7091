//! Which answer a request continues.

use rolltap_rollout::call::CallStatus;
use rolltap_rollout::continuation::AnswerRef;

use super::*;

/// A long answer, which is recognised if a request repeats it.
const TELLING: &str =
    "The parser fails because the grammar has no rule for empty lists; I shall add one and run the tests.";

/// A trial whose prompts have invented ids.
#[derive(Default)]
struct Trial {
    memory: Memory,
    calls: std::cell::Cell<u32>,
}

/// A request that the memory has looked up.
struct Asked {
    found: Predecessor,
    seed: PendingAnswer,
}

fn ids(ids: &[u32]) -> Vec<TokenId> {
    ids.iter().map(|&id| TokenId::try_from(id).unwrap()).collect()
}

impl Trial {
    fn asks(&self, body: &Value) -> Asked {
        let text = body.to_string();
        let request = PromptRequest::read(&text).unwrap();
        let Looked { found, conversation, inputs, .. } = self.memory.find(&request).unwrap();
        Asked { found, seed: PendingAnswer { conversation, inputs, maker: Maker::Server } }
    }

    /// Answers the request. Each answer has the given ids, and the prompt differs from every other prompt.
    fn is_answered(&self, asked: &Asked, answers: &[(&Value, &[u32])]) -> Vec<AnswerRef> {
        self.calls.set(self.calls.get() + 1);
        let sampled = |(message, of_answer): &(&Value, &[u32])| Sampled {
            ids: ids(of_answer),
            message: (*message).clone(),
            stop_reason: None,
        };
        let (call, said) = answered(&ids(&[self.calls.get()]), answers.iter().map(sampled).collect());
        self.memory.answered(&asked.seed, &call, &read_answers(said)).iter().map(|node| node.name()).collect()
    }

    /// Makes a call with one answer. Returns the predecessor in one word, and the answer's name.
    fn call(&self, messages: &[Value], answer: &Value) -> (String, AnswerRef) {
        let asked = self.asks(&chat(messages));
        (word(&asked.found), self.is_answered(&asked, &[(answer, &[7])]).remove(0))
    }

    /// Looks up a request of these messages. Returns the predecessor in one word, and the answer that the request
    /// continues with the number of new messages.
    fn finds(&self, messages: &[Value]) -> (String, Option<(AnswerRef, usize)>) {
        let found = self.asks(&chat(messages)).found;
        let place = match &found {
            Predecessor::Continues { node, new, .. } => Some((node.name(), new.len())),
            Predecessor::New(_) | Predecessor::Otherwise { .. } => None,
        };
        (word(&found), place)
    }
}

fn continues(answer: &AnswerRef, new: usize) -> (String, Option<(AnswerRef, usize)>) {
    ("continues".to_owned(), Some((answer.clone(), new)))
}

fn starts(cause: &str) -> (String, Option<(AnswerRef, usize)>) {
    (cause.to_owned(), None)
}

#[test]
fn the_deepest_answer_is_gone_on_from() {
    let trial = Trial::default();
    let (found, first) = trial.call(&[user("a")], &assistant("b"));
    assert_eq!(found, "first_call");
    let (found, second) = trial.call(&[user("a"), assistant("b"), user("c")], &assistant("d"));
    assert_eq!(found, "continues");
    let long = [user("a"), assistant("b"), user("c"), assistant("d"), user("e"), user("f")];
    assert_eq!(trial.finds(&long), continues(&second, 2));
    assert_eq!(trial.finds(&long[..4]), continues(&second, 0));
    // This request forks from the first answer.
    assert_eq!(trial.finds(&[user("a"), assistant("b"), user("other")]), continues(&first, 1));
}

#[test]
fn answers_are_known_in_other_spellings() {
    let trial = Trial::default();
    let answer = json!({"role": "assistant", "content": "\n\nLet me look.", "reasoning": "hm", "tool_calls": [
        {"id": "chatcmpl-tool-1", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1, \"b\": \"x\"}"}}]});
    let (_, name) = trial.call(&[user("a")], &answer);
    let call = json!({"id": "call_9", "function": {"arguments": "{\"b\":\"x\",\"a\":1}", "name": "f"}});
    let echoes = [
        json!({"role": "assistant", "content": "Let me look. ", "tool_calls": [call]}),
        json!({"tool_calls": [call], "role": "assistant", "content": [{"type": "text", "text": "Let me look."}]}),
        json!({"role": "assistant", "content": "Let me look.", "reasoning_content": " hm\n", "tool_calls": [call],
            "refusal": null, "annotations": [], "provider_specific_fields": {"refusal": null}}),
    ];
    for echo in echoes {
        assert_eq!(trial.finds(&[user("a"), echo.clone(), tool("42")]), continues(&name, 1), "{echo}");
    }
    for other in [
        json!({"role": "assistant", "content": "Let me look.", "reasoning": "why", "tool_calls": [call]}),
        json!({"role": "assistant", "content": "Let me look."}),
        json!({"role": "user", "content": "Let me look.", "tool_calls": [call]}),
    ] {
        assert_eq!(trial.finds(&[user("a"), other.clone(), tool("42")]), starts("history_edited"), "{other}");
    }
}

#[test]
fn reasoning_that_is_not_sent_back_stays_known() {
    let trial = Trial::default();
    let thought = |content: &str| json!({"role": "assistant", "content": content, "reasoning": "hm"});
    let (_, first) = trial.call(&[user("a")], &thought("b"));
    let mut asked = trial.asks(&chat(&[user("a"), assistant("b"), user("c")]));
    let Predecessor::Continues { node, new, .. } = &asked.found else { panic!("it went on from {first:?}") };
    asked.seed.conversation = trial.memory.continued(node, new).unwrap();
    let second = trial.is_answered(&asked, &[(&assistant("d"), &[7])]).remove(0);
    for echo in [assistant("b"), thought("b")] {
        assert_eq!(
            trial.finds(&[user("a"), echo, user("c"), assistant("d"), user("e")]),
            continues(&second, 1)
        );
    }
    let other = json!({"role": "assistant", "content": "b", "reasoning": "no"});
    let messages = [user("a"), other, user("c"), assistant("d"), user("e")];
    assert_eq!(trial.finds(&messages), starts("history_edited"));
}

#[test]
fn two_answers_with_the_same_text_are_ambiguous_unless_their_tokens_are_the_same() {
    let trial = Trial::default();
    let both = trial.asks(&chat(&[user("a")]));
    let names = trial
        .is_answered(&both, &[(&assistant("b"), &[7]), (&assistant("b"), &[8]), (&assistant("c"), &[9])]);
    assert_eq!(names.iter().map(|name| name.choice).collect::<Vec<_>>(), [0, 1, 2]);
    let found = trial.asks(&chat(&[user("a"), assistant("b"), user("d")])).found;
    assert!(
        matches!(&found, Predecessor::Otherwise { parent, cause } if cause.as_str() == "ambiguous" && *parent == names[1]),
        "{found:?}"
    );
    assert_eq!(trial.finds(&[user("a"), assistant("c"), user("d")]), continues(&names[2], 1));

    let trial = Trial::default();
    let twice = trial.asks(&chat(&[user("a")]));
    let names = trial.is_answered(&twice, &[(&assistant("b"), &[7]), (&assistant("b"), &[7])]);
    assert_eq!(trial.finds(&[user("a"), assistant("b"), user("d")]), continues(&names[0], 1));
}

#[test]
fn two_requests_from_one_answer_may_be_under_way_at_once() {
    let trial = Trial::default();
    let (_, first) = trial.call(&[user("a")], &assistant("b"));
    let requests = ["c", "d"].map(|next| vec![user("a"), assistant("b"), user(next)]);
    let asked = requests.clone().map(|messages| trial.asks(&chat(&messages)));
    for asked in &asked {
        assert!(matches!(&asked.found, Predecessor::Continues { node, .. } if node.name() == first));
    }
    let [one, two] = asked.map(|asked| trial.is_answered(&asked, &[(&assistant("e"), &[7])]).remove(0));
    for (mut messages, name) in requests.into_iter().zip([one, two]) {
        messages.extend([assistant("e"), user("f")]);
        assert_eq!(trial.finds(&messages), continues(&name, 1));
    }
}

#[test]
fn other_inputs_are_no_continuation() {
    let trial = Trial::default();
    let (_, first) = trial.call(&[user("a")], &assistant("b"));
    let next = [user("a"), assistant("b"), user("c")];
    for (key, value) in [
        ("tools", json!([{"type": "function", "function": {"name": "f"}}])),
        ("tool_choice", json!("none")),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
        ("reasoning_effort", json!("low")),
        ("model", json!("adapter")),
    ] {
        let mut body = chat(&next);
        body[key] = value;
        let found = trial.asks(&body).found;
        assert!(
            matches!(&found, Predecessor::Otherwise { parent, cause } if cause.as_str() == "inputs_changed" && *parent == first),
            "{key} {found:?}"
        );
    }
    let mut body = chat(&next);
    body["temperature"] = json!(1);
    assert_eq!(word(&trial.asks(&body).found), "continues");
}

#[test]
fn a_new_conversation_has_a_cause() {
    let trial = Trial::default();
    let begun = [system("Today is Monday."), user("Mend it.")];
    trial.call(&begun, &assistant(TELLING));
    trial.call(&[begun.to_vec(), vec![assistant(TELLING), user("go on")]].concat(), &assistant("done"));
    let whole = [begun.to_vec(), vec![assistant(TELLING), user("go on"), assistant("done"), user("and now")]]
        .concat();
    let without = |place: usize| {
        let mut messages = whole.clone();
        messages.remove(place);
        messages
    };
    for (messages, cause) in [
        (begun.to_vec(), "resampled"),
        (vec![system("You check links."), user("Check it.")], "sub_agent"),
        (vec![system("Today is Monday."), user(&format!("So far: {TELLING} Go on."))], "compaction"),
        (vec![system("Today is Tuesday."), user("Mend it.")], "history_edited"),
        (without(2), "history_edited"),
        (vec![begun[0].clone(), begun[1].clone(), assistant("edited"), user("go on")], "history_edited"),
    ] {
        assert_eq!(trial.finds(&messages), starts(cause), "{messages:?}");
    }
    // The history is shortened, but only after the first answer.
    assert_eq!(trial.finds(&without(3)).0, "continues");
}

#[test]
fn an_everyday_phrase_identifies_no_answer() {
    let trial = Trial::default();
    trial.call(&[user("a")], &assistant("Done."));
    assert_eq!(trial.finds(&[user("It said: Done.")]), starts("sub_agent"));
}

#[test]
fn what_was_not_answered_whole_is_not_gone_on_from() {
    let trial = Trial::default();
    let asked = trial.asks(&chat(&[user("a")]));
    let sampled = || vec![Sampled { ids: ids(&[7]), message: assistant("b"), stop_reason: None }];
    let (call, said) = answered(&ids(&[1]), sampled());
    for status in [CallStatus::Failed, CallStatus::Cancelled] {
        let call = Arc::new(Call { status, ..(*call).clone() });
        assert!(trial.memory.answered(&asked.seed, &call, &read_answers(said.clone())).is_empty());
    }
    let (no_prompt, said) = answered(&[], sampled());
    assert!(trial.memory.answered(&asked.seed, &no_prompt, &read_answers(said)).is_empty());
    assert!(
        trial.memory.answered(&asked.seed, &call, &read_answers(vec![(0, None)])).is_empty(),
        "its text is unknown"
    );
    assert_eq!(trial.finds(&[user("a"), assistant("b"), user("c")]), starts("history_edited"));
}

#[test]
fn a_closed_memory_keeps_nothing() {
    let trial = Trial::default();
    let late = trial.asks(&chat(&[user("a")]));
    let (_, first) = trial.call(&[user("a")], &assistant("b"));
    let body = chat(&[user("a"), assistant("b"), user("c")]).to_string();
    let Predecessor::Continues { node, new, .. } =
        trial.memory.find(&PromptRequest::read(&body).unwrap()).unwrap().found
    else {
        panic!("it went on from {first:?}");
    };
    trial.memory.close();
    assert!(trial.memory.find(&PromptRequest::read(&body).unwrap()).is_none());
    assert!(trial.memory.continued(&node, &new).is_none());
    assert!(trial.is_answered(&late, &[(&assistant("b"), &[7])]).is_empty());
    let debug = format!("{:?}", trial.memory);
    assert!(debug.contains("groups: []") && debug.contains("nodes: {}"), "{debug}");
}

#[test]
fn garbage_is_no_conversation() {
    let memory = Memory::default();
    for body in
        [r#"{"messages":["a"]}"#, r#"{"messages":[{"role":"user"},null]}"#, r#"{"messages":[{"role":1}x]}"#]
    {
        assert!(PromptRequest::read(body).is_none_or(|request| memory.find(&request).is_none()), "{body}");
    }
    let odd = r#"{"messages":[{"content":{"deep":[1e999]}}, {"role":7,"tool_calls":"x"}, {}]}"#;
    let _ = PromptRequest::read(odd).map(|request| memory.find(&request));
    let text = chat(&[user("a")]).to_string();
    assert!(memory.find(&PromptRequest::read(&text).unwrap()).is_some());
}
