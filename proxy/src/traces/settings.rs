//! The settings of traces, from the texts that users and the standard variables of OpenTelemetry give.

use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use opentelemetry::KeyValue;
use percent_encoding::percent_decode_str;

use super::sampler::{InvalidSampler, TraceSampler};
use crate::upstream::{Address, InvalidAddress};

/// The path of traces in OTLP over HTTP, below the endpoint.
pub(super) const TRACES_PATH: &str = "/v1/traces";
/// The `service.name` without a name of the user.
const SERVICE_NAME: &str = "rolltap";

/// The settings of traces, in the form of the standard variables. [`TraceSettings::read`] parses them.
#[derive(Clone, Debug, Default)]
pub struct TraceTexts {
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`: the URL of the collector, without `/v1/traces`.
    pub endpoint: String,
    /// `OTEL_EXPORTER_OTLP_HEADERS`: `name=value` pairs with commas between them.
    pub headers: Option<String>,
    /// `OTEL_EXPORTER_OTLP_CERTIFICATE`: a PEM file with the authorities that are trusted for a collector with `https`,
    /// besides those of the system.
    pub certificate: Option<PathBuf>,
    /// `OTEL_SERVICE_NAME`.
    pub service_name: Option<String>,
    /// `OTEL_RESOURCE_ATTRIBUTES`: `name=value` pairs with commas between them.
    pub resource_attributes: Option<String>,
    /// `OTEL_TRACES_SAMPLER`.
    pub sampler: Option<String>,
    /// `OTEL_TRACES_SAMPLER_ARG`.
    pub sampler_arg: Option<String>,
}

/// Where spans go, and which spans are made.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    pub(super) collector: Address,
    /// Headers of each request to the collector, such as its API key.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
    pub(super) certificate: Option<PathBuf>,
    /// Attributes of the process.
    pub(super) resource: Vec<KeyValue>,
    pub(super) sampler: TraceSampler,
}

/// A setting of traces that cannot be used. The message names its variable.
#[derive(Debug, thiserror::Error)]
pub enum InvalidTraceSettings {
    /// The URL of the collector.
    #[error(
        "the OTLP endpoint (OTEL_EXPORTER_OTLP_ENDPOINT), such as http://127.0.0.1:4318, cannot be used: {0}"
    )]
    Endpoint(#[from] InvalidAddress),
    /// A list of pairs.
    #[error("{variable} is a list like name=value,other=value, and its part {part} is not of this form")]
    Pair {
        /// The variable.
        variable: &'static str,
        /// The part, counted from 1. The text may be a secret.
        part: usize,
    },
    /// A header.
    #[error("OTEL_EXPORTER_OTLP_HEADERS: no header can have the name or the value of part {0}")]
    Header(usize),
    /// The sampler.
    #[error("OTEL_TRACES_SAMPLER: {0}")]
    Sampler(#[from] InvalidSampler),
}

impl TraceSettings {
    /// Parses the settings.
    ///
    /// # Errors
    /// A text does not have its form.
    pub fn read(texts: TraceTexts) -> Result<Self, InvalidTraceSettings> {
        // The standard's variable for traces alone has the whole path, and users give it here too.
        let endpoint = texts.endpoint.trim().trim_end_matches('/');
        let sampler = texts.sampler.as_deref().unwrap_or(TraceSampler::NAMES[0]);
        Ok(Self {
            collector: endpoint.strip_suffix(TRACES_PATH).unwrap_or(endpoint).parse()?,
            headers: headers(texts.headers.as_deref().unwrap_or_default())?,
            certificate: texts.certificate,
            resource: resource(texts.service_name, texts.resource_attributes.as_deref().unwrap_or_default())?,
            sampler: TraceSampler::named(sampler, texts.sampler_arg.as_deref())?,
        })
    }

    /// Returns the values of the headers, which no log may contain.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &str> {
        self.headers.iter().filter_map(|(_, value)| value.to_str().ok())
    }
}

fn headers(text: &str) -> Result<Vec<(HeaderName, HeaderValue)>, InvalidTraceSettings> {
    let pairs = pairs("OTEL_EXPORTER_OTLP_HEADERS", text)?;
    let header = |(index, (name, value)): (usize, (String, String))| {
        let name = name.parse::<HeaderName>().ok();
        let value = HeaderValue::try_from(value).ok();
        let (name, mut value) = name.zip(value).ok_or(InvalidTraceSettings::Header(index + 1))?;
        // Debug output hides sensitive values.
        value.set_sensitive(true);
        Ok((name, value))
    };
    pairs.into_iter().enumerate().map(header).collect()
}

/// Returns the attributes of the process. `OTEL_SERVICE_NAME` comes before `service.name` of the attributes, as the
/// standard requires.
fn resource(name: Option<String>, attributes: &str) -> Result<Vec<KeyValue>, InvalidTraceSettings> {
    let mut pairs = pairs("OTEL_RESOURCE_ATTRIBUTES", attributes)?;
    let of_attributes = pairs.iter().find(|(key, _)| key == "service.name").map(|(_, value)| value.clone());
    pairs.retain(|(key, _)| key != "service.name");
    let name = name.or(of_attributes).unwrap_or_else(|| SERVICE_NAME.to_owned());
    let mut resource = vec![KeyValue::new("service.name", name)];
    let own = [
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", uuid::Uuid::now_v7().to_string()),
    ];
    let own = own.into_iter().filter(|(key, _)| pairs.iter().all(|(given, _)| given != key));
    resource.extend(own.map(|(key, value)| KeyValue::new(key, value)));
    resource.extend(pairs.into_iter().map(|(key, value)| KeyValue::new(key, value)));
    Ok(resource)
}

/// Parses `name=value` pairs with commas between them. Values are percent-encoded, as in W3C Baggage.
fn pairs(variable: &'static str, text: &str) -> Result<Vec<(String, String)>, InvalidTraceSettings> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty()).enumerate();
    let pair = |(index, part): (usize, &str)| {
        let wrong = || InvalidTraceSettings::Pair { variable, part: index + 1 };
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| wrong())?;
        match name.trim() {
            "" => Err(wrong()),
            name => Ok((name.to_owned(), value.into_owned())),
        }
    };
    parts.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts() -> TraceTexts {
        TraceTexts { endpoint: "http://c:4318".to_owned(), ..TraceTexts::default() }
    }

    #[test]
    fn the_endpoint_is_given_with_or_without_the_path_of_traces() {
        for endpoint in ["http://c:4318/otlp", "http://c:4318/otlp/", "http://c:4318/otlp/v1/traces"] {
            let settings =
                TraceSettings::read(TraceTexts { endpoint: endpoint.to_owned(), ..texts() }).unwrap();
            assert_eq!(settings.collector.to_string(), "http://c:4318/otlp");
        }
    }

    #[test]
    fn lists_are_decoded_and_the_service_has_one_name() {
        let settings = TraceSettings::read(TraceTexts {
            headers: Some("x-key=a%20b, authorization=Bearer%20secret".to_owned()),
            resource_attributes: Some("service.name=other,deployment.environment=test".to_owned()),
            service_name: Some("mine".to_owned()),
            ..texts()
        })
        .unwrap();
        assert_eq!(settings.secrets().collect::<Vec<_>>(), ["a b", "Bearer secret"]);
        assert!(!format!("{settings:?}").contains("secret"));
        let of = |key: &str| {
            let found = settings.resource.iter().filter(|pair| pair.key.as_str() == key);
            found.map(|pair| pair.value.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            (of("service.name"), of("deployment.environment")),
            (vec!["mine".into()], vec!["test".into()])
        );
        assert_eq!(of("service.version").len(), 1);
    }

    #[test]
    fn wrong_settings_are_named_and_not_repeated() {
        let of = |change: fn(&mut TraceTexts)| {
            let mut texts = texts();
            change(&mut texts);
            TraceSettings::read(texts).unwrap_err().to_string()
        };
        assert!(of(|texts| texts.endpoint = "c:4318".to_owned()).contains("OTEL_EXPORTER_OTLP_ENDPOINT"));
        let error = of(|texts| texts.headers = Some("a=b,secret".to_owned()));
        assert!(error.contains("OTEL_EXPORTER_OTLP_HEADERS") && error.contains("part 2"), "{error}");
        assert!(!error.contains("secret"), "{error}");
        assert!(of(|texts| texts.headers = Some("a b=c".to_owned())).contains("part 1"));
        assert!(
            of(|texts| texts.resource_attributes = Some("=b".to_owned())).contains("RESOURCE_ATTRIBUTES")
        );
        assert!(of(|texts| texts.sampler = Some("all".to_owned())).contains("OTEL_TRACES_SAMPLER"));
    }

    proptest! {
        #[test]
        fn no_text_panics(headers in ".*", attributes in ".*") {
            let (headers, resource_attributes) = (Some(headers), Some(attributes));
            let _ = TraceSettings::read(TraceTexts { headers, resource_attributes, ..texts() });
        }
    }
}
