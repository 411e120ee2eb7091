//! Settings of traces, which `rolltap proxy` and `rolltap run` share. Their variables are the standard ones of OpenTelemetry.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use clap::builder::PossibleValuesParser;
use rolltap_proxy::traces::{TraceSampler, TraceSettings, TraceTexts};
use serde::Deserialize;

/// Settings that are a flag and a variable, and for `rolltap proxy` a key of the file.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[command(next_help_heading = "Traces")]
#[serde(default)]
pub(crate) struct TraceOptions {
    /// Send traces to the OpenTelemetry collector at this URL, by OTLP over HTTP. [default: off]
    ///
    /// The URL is without /v1/traces: http://127.0.0.1:4318. Trials and calls are spans, with counts and times, and
    /// without prompts, answers, token ids and keys.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_name = "URL")]
    pub(crate) otlp_endpoint: Option<String>,
    /// Send these headers to the collector: name=value pairs with commas between them. [default: none]
    ///
    /// Values are percent-encoded: authorization=Bearer%20KEY.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_HEADERS", value_name = "PAIRS", hide_env_values = true)]
    pub(crate) otlp_headers: Option<String>,
    /// Trust the authorities in this PEM file for a collector with https. [default: those of the system]
    ///
    /// The authorities of the system are trusted too.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE", value_name = "FILE")]
    pub(crate) otlp_certificate: Option<PathBuf>,
    /// Name the service of the spans. [default: rolltap]
    #[arg(long, env = "OTEL_SERVICE_NAME", value_name = "NAME")]
    pub(crate) otel_service_name: Option<String>,
    /// Add these attributes to all spans: name=value pairs with commas between them. [default: none]
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", value_name = "PAIRS")]
    pub(crate) otel_resource_attributes: Option<String>,
    /// Choose the traces that are recorded. [default: parentbased_always_on]
    ///
    /// A `parentbased_` sampler follows the decision of the agent or the runner that began the trace.
    #[arg(long, env = "OTEL_TRACES_SAMPLER", value_name = "SAMPLER",
          value_parser = PossibleValuesParser::new(TraceSampler::NAMES))]
    pub(crate) otel_traces_sampler: Option<String>,
    /// Record this share of the traces, from 0 to 1, with a sampler whose name ends in `traceidratio`. [default: 1]
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", value_name = "SHARE")]
    pub(crate) otel_traces_sampler_arg: Option<String>,
}

impl TraceOptions {
    /// Returns the settings, or `None` if traces are off.
    pub(crate) fn settings(self) -> anyhow::Result<Option<TraceSettings>> {
        // The standard treats an empty variable as unset.
        let known = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let Some(endpoint) = known(self.otlp_endpoint).filter(|_| !is_disabled()) else { return Ok(None) };
        check_protocol()?;
        let texts = TraceTexts {
            endpoint,
            headers: known(self.otlp_headers),
            certificate: self.otlp_certificate,
            service_name: known(self.otel_service_name),
            resource_attributes: known(self.otel_resource_attributes),
            sampler: known(self.otel_traces_sampler),
            sampler_arg: known(self.otel_traces_sampler_arg),
        };
        Ok(Some(TraceSettings::read(texts)?))
    }
}

/// Whether the standard variable switches OpenTelemetry off in every program.
fn is_disabled() -> bool {
    std::env::var("OTEL_SDK_DISABLED").is_ok_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Refuses another protocol: spans that are sent by the wrong one arrive nowhere.
fn check_protocol() -> anyhow::Result<()> {
    match std::env::var("OTEL_EXPORTER_OTLP_PROTOCOL") {
        Ok(protocol) if !protocol.is_empty() && protocol != "http/protobuf" => bail!(
            "OTEL_EXPORTER_OTLP_PROTOCOL is {protocol:?}, and rolltap sends OTLP as http/protobuf only: set it to that, with \
             the collector's endpoint for HTTP, usually port 4318"
        ),
        _ => Ok(()),
    }
}
