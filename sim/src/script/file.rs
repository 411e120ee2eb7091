//! The script file as TOML, and the checks of an answer.

use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;

use super::{Act, Fault, Reply, ScriptedToolCall, WeightedAnswer};
use crate::tokens::control_in;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptFile {
    #[serde(default)]
    pub(super) conversation: Vec<ConversationFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConversationFile {
    #[serde(rename = "match")]
    pub(super) matches: Option<String>,
    #[serde(default)]
    pub(super) turn: Vec<TurnFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TurnFile {
    #[serde(default)]
    pub(super) answer: Vec<AnswerFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerFile {
    content: Option<String>,
    reasoning: Option<String>,
    #[serde(default)]
    tool_calls: Vec<CallFile>,
    #[serde(default = "one")]
    weight: f64,
    finish_reason: Option<String>,
    #[serde(default)]
    delay_ms: u64,
    token_delay_ms: Option<u64>,
    error: Option<ErrorFile>,
    break_after: Option<u32>,
    stall_after: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallFile {
    name: String,
    arguments: Arguments,
}

/// Arguments as a literal text, which is usually JSON, or as a table.
#[derive(Deserialize)]
#[serde(untagged, expecting = "arguments are a string of JSON or a table")]
enum Arguments {
    Text(String),
    Table(serde_json::Map<String, serde_json::Value>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorFile {
    status: u16,
    message: String,
}

fn one() -> f64 {
    1.0
}

impl TryFrom<AnswerFile> for WeightedAnswer {
    type Error = String;

    fn try_from(file: AnswerFile) -> Result<Self, String> {
        let weight = file.weight;
        if !(weight.is_finite() && weight > 0.0) {
            return Err(format!("weight is {weight}; give a number above 0"));
        }
        let delay = Duration::from_millis(file.delay_ms);
        let Some(error) = &file.error else {
            return Ok(Self { weight, act: Act::Reply(reply(file, delay)?) });
        };
        if speaks(&file) || file.finish_reason.is_some() || file.token_delay_ms.is_some() {
            return Err("error stands beside an answer; a request is either refused or answered".to_owned());
        }
        let status = StatusCode::from_u16(error.status)
            .ok()
            .filter(|status| status.as_u16() >= 400 && status.as_u16() < 600);
        let status =
            status.ok_or_else(|| format!("error.status is {}; give one from 400 to 599", error.status))?;
        Ok(Self { weight, act: Act::Refuse { status, message: error.message.clone(), delay } })
    }
}

fn speaks(file: &AnswerFile) -> bool {
    let faulty = file.break_after.is_some() || file.stall_after.is_some();
    file.content.is_some() || file.reasoning.is_some() || !file.tool_calls.is_empty() || faulty
}

fn reply(file: AnswerFile, delay: Duration) -> Result<Reply, String> {
    if !speaks(&file) {
        return Err(
            "is empty; give content, reasoning, tool_calls, error, break_after or stall_after".to_owned()
        );
    }
    let fault = match (file.break_after, file.stall_after) {
        (Some(_), Some(_)) => return Err("break_after and stall_after exclude each other".to_owned()),
        (Some(tokens), None) => Some(Fault::Break(tokens)),
        (None, Some(tokens)) => Some(Fault::Stall(tokens)),
        (None, None) => None,
    };
    let tool_calls = file.tool_calls.into_iter().map(call).collect::<Result<Vec<_>, _>>()?;
    let content = file.content.unwrap_or_default();
    let texts = [Some(&content), file.reasoning.as_ref()].into_iter().flatten();
    // A control token in the text would end or start a message in the next prompt.
    if let Some(mark) =
        texts.chain(tool_calls.iter().map(|call| &call.arguments)).find_map(|text| control_in(text))
    {
        return Err(format!("contains {mark}, which ends or starts a message; take it out"));
    }
    Ok(Reply {
        content,
        reasoning: file.reasoning,
        tool_calls,
        finish_reason: file.finish_reason,
        delay,
        token_delay: file.token_delay_ms.map(Duration::from_millis),
        fault,
    })
}

fn call(file: CallFile) -> Result<ScriptedToolCall, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if file.name.is_empty() || !file.name.chars().all(plain) {
        return Err(format!("tool name `{}` is not made of letters, digits, `_`, `-` and `.`", file.name));
    }
    let arguments = match file.arguments {
        Arguments::Text(text) => text,
        Arguments::Table(map) => serde_json::Value::Object(map).to_string(),
    };
    Ok(ScriptedToolCall { name: file.name, arguments })
}
