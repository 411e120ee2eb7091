//! Which traces are recorded, by the names of `OTEL_TRACES_SAMPLER`.

use opentelemetry::Context;
use opentelemetry::trace::{SpanKind, TraceContextExt, TraceId};
use opentelemetry_sdk::trace::{Sampler, SamplingDecision, ShouldSample};

use super::place::SpanPlace;

/// The choice of the traces that are recorded.
#[derive(Clone, Debug)]
pub struct TraceSampler(Sampler);

/// A name or an argument that is no choice.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSampler {
    /// The name is not one of the standard.
    #[error("{0:?} is no sampler; it may be {names}", names = TraceSampler::NAMES.join(", "))]
    Name(String),
    /// The argument is not a share.
    #[error("the sampler's argument is {0:?}; it is the share of traces to record, from 0 to 1")]
    Argument(String),
}

impl TraceSampler {
    /// The names of the standard that are supported. The first is the default.
    pub const NAMES: [&str; 6] = [
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
        "always_on",
        "always_off",
        "traceidratio",
    ];

    /// Returns the sampler with this name. `argument` is the share of the traces, from 0 to 1, for the names that end in
    /// `traceidratio`. Without it, all traces are recorded.
    ///
    /// # Errors
    /// The name is unknown, or the argument is not a number from 0 to 1.
    pub fn named(name: &str, argument: Option<&str>) -> Result<Self, InvalidSampler> {
        let (is_by_parent, own) = match name.strip_prefix("parentbased_") {
            Some(own) => (true, own),
            None => (false, name),
        };
        let own = match own {
            "always_on" => Sampler::AlwaysOn,
            "always_off" => Sampler::AlwaysOff,
            "traceidratio" => Sampler::TraceIdRatioBased(share(argument)?),
            _ => return Err(InvalidSampler::Name(name.to_owned())),
        };
        Ok(Self(if is_by_parent { Sampler::ParentBased(Box::new(own)) } else { own }))
    }

    /// Whether a span of this trace is recorded.
    pub(super) fn samples(&self, trace: TraceId, parent: Option<SpanPlace>) -> bool {
        let parent = parent.map(|parent| Context::new().with_remote_span_context(parent.context()));
        let result = self.0.should_sample(parent.as_ref(), trace, "", &SpanKind::Internal, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

impl Default for TraceSampler {
    fn default() -> Self {
        Self(Sampler::ParentBased(Box::new(Sampler::AlwaysOn)))
    }
}

fn share(argument: Option<&str>) -> Result<f64, InvalidSampler> {
    let Some(text) = argument else { return Ok(1.0) };
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| InvalidSampler::Argument(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(name: &str, argument: Option<&str>, parent: Option<bool>) -> bool {
        let place = SpanPlace::root(&["a"], parent.unwrap_or_default());
        TraceSampler::named(name, argument).unwrap().samples(place.trace, parent.map(|_| place))
    }

    #[test]
    fn the_names_of_the_standard_have_their_meaning() {
        for (name, argument, by_parent) in [
            // The decisions without a parent, with an unrecorded and with a recorded one.
            ("parentbased_always_on", None, [true, false, true]),
            ("parentbased_always_off", None, [false, false, true]),
            ("parentbased_traceidratio", Some("0"), [false, false, true]),
            ("parentbased_traceidratio", None, [true, false, true]),
            ("always_on", None, [true, true, true]),
            ("always_off", None, [false, false, false]),
            ("traceidratio", Some("1.0"), [true, true, true]),
        ] {
            assert!(TraceSampler::NAMES.contains(&name));
            let found = [None, Some(false), Some(true)].map(|parent| samples(name, argument, parent));
            assert_eq!(found, by_parent, "{name}");
        }
    }

    #[test]
    fn a_share_of_the_traces_is_recorded() {
        let sampler = TraceSampler::named("traceidratio", Some("0.25")).unwrap();
        let traces = (0..1000).map(|number| SpanPlace::root(&[&number.to_string()], false).trace);
        let recorded = traces.filter(|&trace| sampler.samples(trace, None)).count();
        assert!((200..300).contains(&recorded), "{recorded}");
    }

    #[test]
    fn other_names_and_arguments_are_errors() {
        let error = |name, argument| TraceSampler::named(name, argument).unwrap_err().to_string();
        assert!(error("jaeger_remote", None).contains("parentbased_always_on, "));
        for argument in ["2", "-1", "half", "NaN"] {
            assert!(error("traceidratio", Some(argument)).contains("from 0 to 1"), "{argument}");
        }
    }
}
