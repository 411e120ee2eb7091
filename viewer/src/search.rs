//! Finds the trials that a filter admits, and reads their calls if the filter needs them.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::collection::{JobContent, SearchedTrial, TrialEntry};
use crate::filter::Filter;

/// The longest time of one search. A longer search delays other requests.
const LONGEST: Duration = Duration::from_secs(5);

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Found<'c> {
    /// The trials that the filter admits, in the order of the list.
    pub(crate) trials: Vec<&'c TrialEntry>,
    /// The number of trials whose calls were not read, because the time was over.
    pub(crate) unread: usize,
}

/// Searches a job. Reads calls for at most five seconds.
pub(crate) fn search<'c>(content: &'c JobContent, filter: &Filter) -> Found<'c> {
    search_until(content, filter, Instant::now() + LONGEST)
}

fn search_until<'c>(content: &'c JobContent, filter: &Filter, deadline: Instant) -> Found<'c> {
    let candidates: Vec<&TrialEntry> = content.trials.iter().filter(|trial| filter.admits(trial)).collect();
    if !filter.needs_calls() {
        return Found { trials: candidates, unread: 0 };
    }
    let wanted: HashSet<&str> = candidates.iter().map(|trial| trial.id.as_str()).collect();
    let words = filter.words.to_lowercase();
    let (mut matching, mut read) = (HashSet::new(), HashSet::new());
    content.visit_trials(&wanted, &|| Instant::now() < deadline, &mut |trial| {
        if has_role(trial, &filter.role) && has_words(trial, &words) {
            matching.insert(trial.id.to_owned());
        }
        read.insert(trial.id.to_owned());
    });
    let unread = candidates.iter().filter(|trial| !read.contains(&trial.id)).count();
    let trials = candidates.into_iter().filter(|trial| matching.contains(&trial.id)).collect();
    Found { trials, unread }
}

fn has_role(trial: SearchedTrial<'_>, role: &str) -> bool {
    role.is_empty()
        || trial.rows.iter().flat_map(|row| &row.calls).any(|call| call.role == role)
        // A call that sampled nothing is in no row.
        || trial.calls.iter().any(|(call, _)| call.role.as_str() == role)
}

/// Whether a message or an answer has the text, which is in lower case.
fn has_words(trial: SearchedTrial<'_>, words: &str) -> bool {
    if words.is_empty() {
        return true;
    }
    // The calls of a conversation share their messages, so each text is looked at once.
    let mut seen = HashSet::new();
    let mut is_found = |text: &str| seen.insert(text.as_ptr()) && message_has(text, words);
    let recorded = trial.calls.iter().filter_map(|(_, conversation)| conversation.as_ref());
    let of_rows = trial.rows.iter().flat_map(|row| &row.calls).filter_map(|call| call.messages.as_deref());
    recorded
        .flat_map(|conversation| {
            conversation.messages.iter().chain(conversation.answers.iter().map(|(_, answer)| answer))
        })
        .map(|text| &**text)
        .chain(of_rows)
        .any(&mut is_found)
}

/// The members of messages whose values are terms of the protocol, ids or data. A search leaves them out.
const OF_PROTOCOL: [&str; 5] = ["role", "type", "id", "tool_call_id", "image_url"];

/// Whether a text is in a string of this JSON. Escape sequences are decoded before the comparison.
fn message_has(json: &str, words: &str) -> bool {
    serde_json::from_str(json).is_ok_and(|message: Value| value_has(&message, words))
}

fn value_has(value: &Value, words: &str) -> bool {
    match value {
        Value::String(text) => text.to_lowercase().contains(words),
        Value::Array(values) => values.iter().any(|value| value_has(value, words)),
        Value::Object(members) => members
            .iter()
            .filter(|(name, _)| !OF_PROTOCOL.contains(&name.as_str()))
            .any(|(_, value)| value_has(value, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use rolltap_testing::{rollout_row, write_jsonl};
    use serde_json::json;

    use super::*;
    use crate::collection::Collection;

    fn content(dir: &std::path::Path) -> std::sync::Arc<JobContent> {
        let mut rows = ["one", "two", "three"].map(|trial| rollout_row(trial, "task", Some(1.0), 3)).to_vec();
        let messages = json!([{"role": "user", "content": [{"type": "text", "text": "Say \"Grüße\"\nnow"}]}]);
        rows[1]["calls"][0]["messages"] = messages.to_string().into();
        rows[1]["calls"][0]["role"] = "compaction".into();
        rows[2]["reward"] = 0.0.into();
        rows[2]["calls"][0]["messages"] = messages.to_string().into();
        let file = dir.join("rows.jsonl");
        write_jsonl(&file, &rows);
        Collection::open(&[file]).unwrap().jobs()[0].content()
    }

    fn ids(found: &Found<'_>) -> Vec<String> {
        found.trials.iter().map(|trial| trial.id.clone()).collect()
    }

    #[test]
    fn words_are_found_as_the_reader_sees_them_and_with_the_other_filters() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(dir.path());
        let words = |words: &str| Filter { words: words.to_owned(), ..Filter::default() };
        for (filter, expected) in [
            (Filter::default(), vec!["one", "two", "three"]),
            (words("\"grÜSSE\""), vec![]),
            (words("\"grÜße\"\nnow"), vec!["two", "three"]),
            (words("content"), vec![]),
            (words("user"), vec![]),
            (Filter { min: "0.5".to_owned(), ..words("grüße") }, vec!["two"]),
            (Filter { role: "compaction".to_owned(), ..Filter::default() }, vec!["two"]),
            (Filter { role: "main".to_owned(), ..words("grüße") }, vec!["three"]),
        ] {
            let found = search(&content, &filter);
            assert_eq!(
                (ids(&found), found.unread),
                (expected.iter().map(ToString::to_string).collect(), 0),
                "{filter:?}"
            );
        }
    }

    #[test]
    fn a_search_without_time_names_the_trials_that_it_has_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let content = content(dir.path());
        let filter = Filter { words: "grüße".to_owned(), ..Filter::default() };
        let found = search_until(&content, &filter, Instant::now() - Duration::from_secs(1));
        assert_eq!((ids(&found).len(), found.unread), (0, 3));
    }
}
