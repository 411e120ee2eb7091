use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use CallRole::{Compaction, Main, Probe, SubAgent, Title};
use Dialect::{ChatCompletions, Messages, Responses};

fn rules(toml: &str) -> RoleRules {
    #[derive(Deserialize)]
    struct File {
        roles: Vec<RoleRule>,
    }
    RoleRules::with(toml::from_str::<File>(toml).unwrap().roles).unwrap()
}

fn role(rules: &RoleRules, dialect: Dialect, request: &Value) -> CallRole {
    let (request, max_tokens) = (request.to_string(), request["max_tokens"].as_u64());
    let request = ChatOutline::scan(&request).unwrap();
    rules.role_of(RoleRequest { dialect, model: "claude-haiku-4", max_tokens, request: Some(&request) })
}

fn chat(messages: &[(&str, &str)]) -> Value {
    let messages = messages.iter().map(|(role, content)| json!({"role": role, "content": content}));
    json!({"model": "m", "messages": messages.collect::<Vec<_>>(), "max_tokens": 100})
}

#[test]
fn calls_of_known_agents_are_known() {
    let known = RoleRules::default();
    let ask = |dialect, system: &str, last: &str| {
        role(
            &known,
            dialect,
            &chat(&[("system", system), ("user", "Fix it."), ("assistant", "Yes."), ("user", last)]),
        )
    };
    let summary = "CRITICAL: Respond with TEXT ONLY.\n\nYour task is to create a detailed summary of the conversation so far";
    assert_eq!(
        ask(Messages, "You are Claude Code, Anthropic's official CLI for Claude.", summary),
        Compaction
    );
    assert_eq!(
        ask(Messages, "You are an agent for Claude Code, Anthropic's official CLI for Claude.", "go"),
        SubAgent
    );
    assert_eq!(
        ask(Messages, "Generate a concise, sentence-case title (3-7 words) that …", "<session>"),
        Title
    );
    assert_eq!(
        ask(Responses, "You are Codex.", "You are performing a CONTEXT CHECKPOINT COMPACTION. Create"),
        Compaction
    );
    assert_eq!(
        ask(ChatCompletions, "You are a title generator. You output ONLY a thread title. No", "x"),
        Title
    );
    assert_eq!(
        ask(ChatCompletions, "", "You are about to hand off your work to another AI agent.\nPlease"),
        Compaction
    );
    assert_eq!(ask(ChatCompletions, "You are helpful.", summary), Main, "only its own agent says so");
}

#[test]
fn one_token_is_a_probe_in_every_dialect() {
    let mut request = chat(&[("user", "quota")]);
    request["max_tokens"] = 1.into();
    for dialect in [ChatCompletions, Messages, Responses] {
        assert_eq!(role(&RoleRules::default(), dialect, &request), Probe);
    }
    request.as_object_mut().unwrap().remove("max_tokens");
    assert_eq!(role(&RoleRules::default(), ChatCompletions, &request), Main);
}

#[test]
fn a_users_rules_come_first_and_all_conditions_count() {
    let rules = rules(
        "[[roles]]\nrole = \"main\"\nmax_tokens_at_most = 1\nlast_user_contains = \"yes or no?\"\n\
         [[roles]]\nrole = \"title\"\nmodel = \"claude-haiku-*\"\nhas_tools = false\nfirst_user_contains = \"name \\\"it\\\"\"\n\
         dialect = \"messages\"\n",
    );
    let mut request = chat(&[("user", "name \"it\""), ("user", "yes or no?")]);
    assert_eq!(role(&rules, Messages, &request), Title);
    assert_eq!(role(&rules, ChatCompletions, &request), Main);
    request["tools"] = json!([{"type": "function"}]);
    assert_eq!(role(&rules, Messages, &request), Main);
    request["max_tokens"] = 1.into();
    assert_eq!(role(&rules, Messages, &request), Main, "not a probe");
    request["messages"][1]["content"] = "no".into();
    assert_eq!(role(&rules, Messages, &request), Probe);
}

#[test]
fn parts_and_escapes_are_read_and_tool_results_are_not() {
    let rules = rules(
        "[[roles]]\nrole = \"compaction\"\nlast_user_contains = \"Fasse <alles> zusammen: \\\"größer\\\"\"",
    );
    let text = "Bitte.\nFasse <alles> zusammen: \"größer\".";
    let parts = json!([{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": text}]);
    let request = json!({"messages": [{"content": parts, "role": "user"}, {"role": "tool", "content": "x"}]});
    let ascii = "{\"messages\":[{\"role\":\"user\",\"content\":\"Fasse \\u003calles\\u003e zusammen: \\\"gr\\u00f6\\u00dfer\\\"\"}]}";
    for request in [request.to_string(), ascii.to_owned()] {
        let outline = ChatOutline::scan(&request).unwrap();
        let asked =
            RoleRequest { dialect: ChatCompletions, model: "m", max_tokens: None, request: Some(&outline) };
        assert_eq!(rules.role_of(asked), Compaction, "{request}");
    }
    let of_tool = json!({"messages": [{"role": "user", "content": "go"}, {"role": "tool", "content": text}]});
    assert_eq!(role(&rules, ChatCompletions, &of_tool), Main);
}

#[test]
fn a_rule_that_fits_everything_is_refused() {
    let of = |rule| RoleRules::with(vec![rule]).unwrap_err();
    assert_eq!(of(RoleRule::of(Title)), InvalidRule::NoCondition(1));
    let empty = RoleRule { system_contains: Some(String::new()), ..RoleRule::of(Title) };
    assert_eq!(of(empty), InvalidRule::EmptyText(1));
}

proptest! {
    #[test]
    fn a_text_is_found_whatever_stands_around_it(before: String, text in "\\PC{1,12}", after: String) {
        let rule = RoleRule { system_contains: Some(text.clone()), ..RoleRule::of(Title) };
        let rules = RoleRules::with(vec![rule]).unwrap();
        let request = chat(&[("system", &format!("{before}{text}{after}")), ("user", "")]);
        prop_assert_eq!(role(&rules, ChatCompletions, &request), Title);
    }

    #[test]
    fn arbitrary_requests_never_panic(request: String, dialect in prop::sample::select(vec![ChatCompletions, Messages])) {
        let request = ChatOutline::scan(&request).ok();
        let asked = RoleRequest { dialect, model: "m", max_tokens: None, request: request.as_ref() };
        prop_assert_eq!(RoleRules::default().role_of(asked), Main);
    }
}
