//! A chat template, compiled with the settings that transformers uses for Jinja (`utils/chat_template_utils.py`).

use std::error::Error as _;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Rest, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};

use super::generation::without_generation_tags;
use super::{ContentFormat, RenderError, format, json, methods, python};

/// The name of the template in its environment, which has no other template.
const NAME: &str = "chat";

/// A compiled chat template.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
    /// The form of content that the template reads.
    pub(super) format: ContentFormat,
    /// Whether the template mentions the `developer` role. If it does not, vLLM turns developer messages into system
    /// messages.
    pub(super) knows_developer: bool,
}

impl Template {
    /// Compiles a template. The error is the reason in words.
    pub(super) fn compile(source: &str) -> Result<Self, String> {
        // Jinja normalises line breaks before it parses a template.
        let source = without_generation_tags(&source.replace("\r\n", "\n").replace('\r', "\n"));
        let mut environment = environment().map_err(describe)?;
        let format = format::detect(&source, environment.syntax().clone()).map_err(describe)?;
        let knows_developer = source.contains("\"developer\"") || source.contains("'developer'");
        environment.add_template_owned(NAME, source).map_err(describe)?;
        Ok(Self { environment, format, knows_developer })
    }

    /// Renders the template. `context` holds the messages, tools and all other inputs.
    pub(super) fn render(&self, context: Value) -> Result<String, RenderError> {
        let template = self.environment.get_template(NAME);
        template.and_then(|template| template.render(context)).map_err(|error| refusal(&error))
    }
}

fn environment() -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?;
    environment.set_syntax(syntax);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_unknown_method_callback(methods::call);
    environment.set_formatter(|out, _, value| {
        python::write_str(out, value).map_err(|_| Error::from(ErrorKind::WriteFailure))
    });
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", json::tojson);
    environment.add_filter("string", |value: &Value| python::to_str(value));
    environment.add_filter("trim", |value: &Value, chars: Rest<Value>| {
        methods::strip(&python::to_str(value), &chars, true, true)
    });
    // In Jinja, strings, dictionaries and undefined values are sequences too.
    environment.add_test("sequence", |value: &Value| {
        matches!(value.kind(), ValueKind::Undefined | ValueKind::String | ValueKind::Seq | ValueKind::Map)
    });
    environment.add_test("iterable", |value: &Value| {
        value.is_undefined() || value.as_str().is_some() || value.try_iter().is_ok()
    });
    Ok(environment)
}

/// The message of a template that refuses a conversation.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(Arc<str>);

fn raise_exception(message: &Value) -> Result<Value, Error> {
    let message = python::to_str(message);
    let raised = Raised(message.as_str().into());
    Err(Error::new(ErrorKind::InvalidOperation, message).with_source(raised))
}

/// Returns the current time by the proxy's clock and time zone. The server's rendering is the same if its clock and
/// time zone are.
fn strftime_now(_: &State<'_, '_>, format: &str) -> Result<String, Error> {
    jiff::fmt::strtime::format(format, &jiff::Zoned::now())
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("strftime_now: {error}")))
}

fn refusal(error: &Error) -> RenderError {
    // minijinja may wrap the error of a function, so the whole chain of causes is searched.
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(raised) = error.downcast_ref::<Raised>() {
            return RenderError::Raised(raised.0.to_string());
        }
        cause = error.source();
    }
    RenderError::Template(error.to_string())
}

fn describe(error: Error) -> String {
    error.to_string()
}
