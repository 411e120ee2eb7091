//! Assembles the tool calls of a message.

use serde_json::{Map, Value, json};

use super::members;
use super::text::Text;
use crate::recorder::find_or_push;
use crate::wire::json_scan::Cursor;

/// The received part of a message's tool calls.
#[derive(Debug, Default)]
pub(super) struct Calls(Vec<Called>);

/// One tool call. Its name arrives first, then its arguments in one piece per token.
#[derive(Debug, Default)]
struct Called {
    index: u32,
    id: Text,
    kind: Text,
    name: Text,
    arguments: Text,
}

impl Calls {
    /// Adds the `tool_calls` of a delta or of a whole message. Each piece of a stream has the index of its call, and a
    /// whole message has its calls in order. `None` if the text is not such a list.
    pub(super) fn take(&mut self, list: &str) -> Option<()> {
        if let Some((index, arguments)) = exact_piece(list) {
            return self.called(index).arguments.append(arguments);
        }
        let mut cursor = Cursor::new(list);
        let mut place = 0;
        cursor.array(|cursor| {
            self.piece(cursor.value()?, place)?;
            place += 1;
            Some(())
        })?;
        cursor.is_at_end().then_some(())
    }

    /// Sets `id` and `name`, which may be repeated. `None` if a second value differs, because clients then disagree on the
    /// called tool.
    fn piece(&mut self, json: &str, place: u32) -> Option<()> {
        let [index, function, id, kind] = members(json, ["index", "function", "id", "type"])?;
        let index = index.map_or(Some(place), |index| index.parse().ok())?;
        let call = self.called(index);
        if let Some(id) = id {
            call.id.once(id)?;
        }
        if let Some(kind) = kind {
            call.kind.once(kind)?;
        }
        let Some(function) = function else { return Some(()) };
        let [arguments, name] = members(function, ["arguments", "name"])?;
        if let Some(name) = name {
            call.name.once(name)?;
        }
        arguments.map_or(Some(()), |arguments| call.arguments.append(arguments))
    }

    fn called(&mut self, index: u32) -> &mut Called {
        find_or_push(&mut self.0, |call| call.index == index, || Called { index, ..Called::default() })
    }

    /// Returns the calls in order, if there are any. `None` if the escapes of a call are invalid.
    pub(super) fn finish(mut self) -> Option<Option<Value>> {
        self.0.sort_by_key(|call| call.index);
        let calls: Vec<_> = self.0.into_iter().map(Called::finish).collect::<Option<_>>()?;
        Some(if calls.is_empty() { None } else { Some(calls.into()) })
    }
}

/// Parses a list with one piece of a call's arguments, in vLLM's exact spelling, which occurs once per token.
fn exact_piece(list: &str) -> Option<(u32, &str)> {
    let mut cursor = Cursor::new(list);
    cursor.exactly(r#"[{"index":"#)?;
    let index = cursor.value()?.parse().ok()?;
    cursor.exactly(r#","function":{"arguments":"#)?;
    let arguments = cursor.value().filter(|arguments| arguments.starts_with('"'))?;
    cursor.exactly("}}]")?;
    cursor.is_at_end().then_some((index, arguments))
}

impl Called {
    fn finish(self) -> Option<Value> {
        let mut call = Map::new();
        if let Some(id) = self.id.finish()? {
            call.insert("id".to_owned(), id.into());
        }
        let kind = self.kind.finish()?.unwrap_or_else(|| "function".to_owned());
        call.insert("type".to_owned(), kind.into());
        let mut function = Map::new();
        if let Some(name) = self.name.finish()? {
            function.insert("name".to_owned(), name.into());
        }
        function.insert("arguments".to_owned(), json!(self.arguments.finish()?.unwrap_or_default()));
        call.insert("function".to_owned(), function.into());
        Some(call.into())
    }
}
