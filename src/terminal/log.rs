//! The log on standard error: lines of text, or a JSON object per line. No line holds a known secret.

use std::io::{self, Write};
use std::sync::{Arc, LazyLock, OnceLock};

use clap::ValueEnum;
use rolltap_orchestrator::common::style::has_colours;
use rolltap_orchestrator::job::above_progress;
use rolltap_proxy::Redaction;
use serde_json::Value;
use tracing_subscriber::EnvFilter;

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts the log on standard error. Servers log at level info with times, other commands at level warn. Each
/// `--verbose` adds a level.
pub(crate) fn start_logging(verbose: u8, is_server: bool, format: LogFormat) {
    let level = match verbose + u8::from(is_server) {
        0 => "warn",
        1 => "rolltap=info,rolltap_proxy=info,rolltap_orchestrator=info,rolltap_agent=info,warn",
        2 => "rolltap=debug,rolltap_proxy=debug,rolltap_orchestrator=debug,rolltap_agent=debug,info",
        _ => "trace",
    };
    let filter = EnvFilter::try_from_env("ROLLTAP_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    // A process has one log, so a second value would be the same.
    let _ = FORMAT.set(format);
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || Lines { out: std::io::stderr(), format })
        // Without this setting, a failed write is reported with `eprintln!`, which panics in the thread that logs.
        .log_internal_errors(false);
    if format == LogFormat::Json {
        logs.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        // The standard hook prints several lines of text.
        return std::panic::set_hook(Box::new(|panic| {
            event("ERROR", &[("message", panic.to_string().as_str())])
        }));
    }
    let logs = logs.with_ansi(has_colours(&std::io::stderr()));
    if is_server || verbose > 0 { logs.init() } else { logs.without_time().with_target(false).init() }
}

/// The form of this process's log. Unset before the log starts.
static FORMAT: OnceLock<LogFormat> = OnceLock::new();

/// Secrets to remove before a configuration is read, and in commands without a configuration.
static ALWAYS_SECRET: LazyLock<Arc<Redaction>> = LazyLock::new(Arc::default);

/// Secrets to remove from each line, once the configuration is read.
static REDACTION: OnceLock<Arc<Redaction>> = OnceLock::new();

/// Removes these secrets from all later lines of the log. Only the first call has an effect.
pub(crate) fn hide_from_logs(secrets: Arc<Redaction>) {
    // A process has one configuration, so a second value would be the same.
    let _ = REDACTION.set(secrets);
}

/// Whether the log is JSON, so that nothing else may go to standard error.
pub(crate) fn logs_json() -> bool {
    FORMAT.get() == Some(&LogFormat::Json)
}

/// Writes an event that no filter removes, to a log of JSON. A failed write is ignored, as on a full disk.
pub(super) fn event(level: &str, fields: &[(&str, &str)]) {
    let at = jiff::Timestamp::now().to_string();
    let all = [("timestamp", at.as_str()), ("level", level)].into_iter().chain(fields.iter().copied());
    let all = all.chain([("target", "rolltap")]).map(|(key, text)| (key.to_owned(), Value::from(text)));
    let line = Value::Object(all.collect()).to_string();
    let _ = Lines { out: std::io::stderr(), format: LogFormat::Json }.write_all(line.as_bytes());
}

/// A log writer that makes each event one line without secrets. Events may contain foreign text with newlines.
struct Lines<W> {
    out: W,
    format: LogFormat,
}

impl<W: Write> Write for Lines<W> {
    /// Writes one whole event. The subscriber passes each event in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let redaction = REDACTION.get().unwrap_or(&ALWAYS_SECRET);
        let line = match self.format {
            LogFormat::Json => redacted_json(text.trim_end(), redaction),
            LogFormat::Text => None,
        };
        let line = line.unwrap_or_else(|| {
            let line = text.trim_end_matches('\n').replace('\r', "\\r").replace('\n', "\\n");
            redaction.redacted(&line).into_owned()
        });
        above_progress(|| {
            self.out.write_all(line.as_bytes())?;
            self.out.write_all(b"\n")
        })?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Returns a JSON object without secrets in its texts. The texts are redacted one by one, so that the result is JSON
/// whatever the patterns of the user match. `None` if the line is not JSON.
fn redacted_json(line: &str, redaction: &Redaction) -> Option<String> {
    let mut event: Value = serde_json::from_str(line).ok()?;
    redact(&mut event, redaction);
    Some(event.to_string())
}

fn redact(value: &mut Value, redaction: &Redaction) {
    match value {
        Value::String(text) => *text = redaction.redacted(text).into_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, redaction)),
        Value::Object(fields) => fields.values_mut().for_each(|field| redact(field, redaction)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: LogFormat, event: &str) -> String {
        let mut log = Lines { out: Vec::new(), format };
        log.write_all(event.as_bytes()).unwrap();
        String::from_utf8(log.out).unwrap()
    }

    #[test]
    fn an_event_is_one_line_without_secrets() {
        let event = format!("INFO said=\"a\nINFO forged\r\" sk-{}\n", "0".repeat(64));
        assert_eq!(written(LogFormat::Text, &event), "INFO said=\"a\\nINFO forged\\r\" [redacted]\n");
    }

    #[test]
    fn an_event_of_json_stays_json_without_secrets() {
        let key = format!("sk-{}", "0".repeat(64));
        let event = serde_json::json!({"message": format!("x-api-key: \"s\"\n{key}"), "n": 1, "list": [key]});
        let line = written(LogFormat::Json, &format!("{event}\n"));
        let found: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(found["n"], 1);
        assert!(!line.contains(&key) && line.trim_end().lines().count() == 1, "{line}");
        // A pattern that matches beyond quotes must not take the rest of the object away.
        let greedy = Redaction::new(&[], &["token.*".to_owned()]).unwrap();
        let line = redacted_json(r#"{"message":"token abc","level":"INFO"}"#, &greedy).unwrap();
        assert_eq!(line, r#"{"message":"[redacted]","level":"INFO"}"#);
    }

    proptest::proptest! {
        #[test]
        fn each_event_of_json_is_one_line_of_json(text: String) {
            let line = written(LogFormat::Json, &format!("{}\n", serde_json::json!({"message": text})));
            proptest::prop_assert_eq!(line.matches('\n').count(), 1);
            proptest::prop_assert!(serde_json::from_str::<Value>(&line).is_ok());
        }
    }
}
