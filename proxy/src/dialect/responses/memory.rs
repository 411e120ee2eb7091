//! Stores the responses of one trial for `previous_response_id`. Each response is stored with its own new items only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// Maximum memory of one trial's responses, in bytes, by the estimate of `size_of`. The oldest responses are removed
/// first.
const LIMIT: usize = 64 << 20;

/// The stored responses of one trial.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    remembered: Mutex<Remembered>,
}

#[derive(Debug, Default)]
struct Remembered {
    responses: HashMap<String, Response>,
    oldest_first: VecDeque<String>,
    size: usize,
    /// The trial has ended, so no further call can refer to a response.
    is_closed: bool,
}

#[derive(Debug)]
struct Response {
    /// The id of the response that this one continues.
    parent: Option<String>,
    /// The new items of the input, followed by the items of the output.
    items: Vec<Value>,
    size: usize,
}

impl Memory {
    /// Stores a response. `parent` is the response that it continues, and `items` are the items that it adds.
    pub(super) fn remember(&self, id: String, parent: Option<String>, items: Vec<Value>) {
        let size = items.iter().map(size_of).sum();
        let mut remembered = self.lock();
        // A repeated id would replace a response that others may continue.
        if remembered.is_closed || remembered.responses.contains_key(&id) {
            return;
        }
        remembered.responses.insert(id.clone(), Response { parent, items, size });
        remembered.oldest_first.push_back(id);
        remembered.size += size;
        while remembered.size > LIMIT {
            let Some(oldest) = remembered.oldest_first.pop_front() else { break };
            let forgotten = remembered.responses.remove(&oldest).map_or(0, |response| response.size);
            remembered.size = remembered.size.saturating_sub(forgotten);
        }
    }

    /// Removes all responses and rejects new ones.
    pub(crate) fn close(&self) {
        *self.lock() = Remembered { is_closed: true, ..Remembered::default() };
    }

    /// Returns all items up to the end of a response, in order. Returns `None` if the response, or one before it, is
    /// not stored.
    pub(super) fn items_up_to(&self, id: &str) -> Option<Vec<Value>> {
        let remembered = self.lock();
        let mut chain = Vec::new();
        let mut next = Some(id);
        while let Some(id) = next {
            // An agent can create a cycle of parents if it chooses the ids itself.
            let response =
                remembered.responses.get(id).filter(|_| chain.len() < remembered.responses.len())?;
            next = response.parent.as_deref();
            chain.push(&response.items);
        }
        Some(chain.into_iter().rev().flatten().cloned().collect())
    }

    /// Returns the item with this id from any response. References are skipped: an agent's reference with this id would
    /// refer to itself without end.
    pub(super) fn item(&self, id: &str) -> Option<Value> {
        let remembered = self.lock();
        let mut items = remembered.responses.values().flat_map(|response| &response.items);
        let text = |item: &Value, key| item.get(key).and_then(Value::as_str).map(str::to_owned);
        let is_meant = |item: &&Value| {
            let is_reference =
                text(item, "type").map_or(item.get("role").is_none(), |kind| kind == "item_reference");
            !is_reference && text(item, "id").as_deref() == Some(id)
        };
        items.find(is_meant).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Estimates the memory of a value, in bytes.
fn size_of(value: &Value) -> usize {
    const SCALAR: usize = 32;
    match value {
        Value::String(text) => SCALAR + text.len(),
        Value::Array(list) => SCALAR + list.iter().map(size_of).sum::<usize>(),
        Value::Object(object) => {
            SCALAR + object.iter().map(|(key, value)| SCALAR + key.len() + size_of(value)).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => SCALAR,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_closed_memory_takes_nothing() {
        let memory = Memory::default();
        memory.remember("a".into(), None, vec![json!({"id": 1})]);
        memory.close();
        memory.remember("b".into(), None, vec![json!({"id": 2})]);
        assert_eq!((memory.items_up_to("a"), memory.items_up_to("b")), (None, None));
        assert_eq!(memory.lock().size, 0);
    }

    #[test]
    fn a_response_is_remembered_with_those_before_it() {
        let memory = Memory::default();
        memory.remember("a".into(), None, vec![json!({"id": 1}), json!({"id": "x", "role": "user"})]);
        memory.remember("b".into(), Some("a".into()), vec![json!({"id": 2})]);
        memory.remember("fork".into(), Some("a".into()), vec![json!({"id": 3})]);
        assert_eq!(
            memory.items_up_to("b").unwrap(),
            [json!({"id": 1}), json!({"id": "x", "role": "user"}), json!({"id": 2})]
        );
        assert_eq!(memory.items_up_to("fork").unwrap().len(), 3);
        assert_eq!(memory.item("x"), Some(json!({"id": "x", "role": "user"})));
        assert_eq!((memory.items_up_to("c"), memory.item("y")), (None, None));
    }

    #[test]
    fn a_reference_is_not_what_it_refers_to() {
        let memory = Memory::default();
        memory.remember(
            "a".into(),
            None,
            vec![json!({"id": "x"}), json!({"type": "item_reference", "id": "x"})],
        );
        assert_eq!(memory.item("x"), None);
        memory.remember("b".into(), None, vec![json!({"type": "message", "id": "x"})]);
        assert_eq!(memory.item("x"), Some(json!({"type": "message", "id": "x"})));
    }

    #[test]
    fn a_ring_of_ids_ends() {
        let memory = Memory::default();
        memory.remember("a".into(), Some("b".into()), vec![]);
        memory.remember("b".into(), Some("a".into()), vec![]);
        assert_eq!(memory.items_up_to("a"), None);
    }

    #[test]
    fn the_oldest_are_forgotten_and_what_builds_on_them_is_unknown() {
        let memory = Memory::default();
        let large = || vec![Value::String("x".repeat(LIMIT / 2))];
        memory.remember("a".into(), None, large());
        memory.remember("b".into(), Some("a".into()), vec![]);
        assert!(memory.items_up_to("b").is_some());
        memory.remember("c".into(), None, large());
        assert_eq!(memory.items_up_to("b"), None);
        assert!(memory.items_up_to("c").is_some());
        assert!(memory.lock().size <= LIMIT);
    }
}
