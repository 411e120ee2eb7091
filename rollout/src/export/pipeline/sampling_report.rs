//! How the trained tokens of an export were sampled, in ways that a trainer cannot detect.
//!
//! A trainer recomputes logprobs as the softmax over all tokens, at one temperature of its own. The captured logprobs
//! differ if another temperature, a truncation or a penalty shaped the distribution. The ratio of the two is then wrong
//! from the first step on. Hardly any format can represent this, so the export reports each deviation, by name and
//! count.

use std::collections::{BTreeMap, BTreeSet};

use crate::row::{CallSpan, RolloutRow};

/// Counts of rows with trained tokens, by how those were sampled. A row with calls of several kinds counts for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    processed: Shapes,
    raw: Shapes,
    /// The number of rows by the model that the agent named.
    models: BTreeMap<String, u64>,
}

/// The rows of one kind of logprobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Shapes {
    /// By the bits of the temperature, which have the same order as temperatures.
    temperatures: BTreeMap<u64, u64>,
    others: BTreeMap<&'static str, u64>,
}

impl Sampled {
    /// Counts an exported row.
    pub(crate) fn add(&mut self, row: &RolloutRow) {
        let shapes = if row.logprobs_mode == "raw_logprobs" { &mut self.raw } else { &mut self.processed };
        // Sets, so that a row counts once per kind, with any number of calls.
        let (mut temperatures, mut others) = (BTreeSet::new(), BTreeSet::new());
        for call in row.calls.iter().filter(|call| is_trained(row, call)) {
            temperatures.extend(call.temperature.map(f64::to_bits));
            others.extend(call.shaped_by());
        }
        if row.loss_mask.contains(&1) {
            *self.models.entry(row.model.clone()).or_default() += 1;
        }
        for temperature in temperatures {
            *shapes.temperatures.entry(temperature).or_default() += 1;
        }
        for other in others {
            *shapes.others.entry(other).or_default() += 1;
        }
    }

    /// Returns the messages for the user, one line per fact. Empty if everything was sampled as a trainer computes
    /// logprobs at temperature 1.
    pub fn told(&self) -> Vec<String> {
        let mut told = Vec::new();
        let processed = self.processed.temperatures();
        match processed.as_slice() {
            [] | [(1.0, _)] => {}
            [(0.0, rows)] => told.push(format!(
                "{} sampled at temperature 0, which takes the likeliest token: no trainer can divide by it",
                counted(*rows)
            )),
            [(temperature, rows)] => told.push(format!(
                "{} sampled at temperature {temperature}; set the trainer's to it",
                counted(*rows)
            )),
            several => told.push(format!(
                "sampled at several temperatures, of which a trainer has one: {}",
                listed(several.iter().map(|(temperature, rows)| (temperature.to_string(), *rows)))
            )),
        }
        let mut raw = self.raw.temperatures();
        // At temperature 1 the raw logprobs are those that were sampled from.
        raw.retain(|(temperature, _)| *temperature != 1.0);
        if !raw.is_empty() {
            told.push(format!(
                "sampled at another temperature than 1 with raw logprobs, trained as if at 1: {}",
                listed(raw.iter().map(|(temperature, rows)| (temperature.to_string(), *rows)))
            ));
        }
        if !self.processed.others.is_empty() {
            told.push(format!(
                "logprobs of a distribution that sampling had shaped, where a trainer's is of all tokens: {}",
                self.processed.others()
            ));
        }
        if !self.raw.others.is_empty() {
            told.push(format!(
                "raw logprobs of another distribution than was sampled from: {}",
                self.raw.others()
            ));
        }
        if self.models.len() > 1 {
            told.push(format!(
                "trained together, calls of several models: {}",
                listed(self.models.iter().map(|(model, &rows)| (model.clone(), rows)))
            ));
        }
        told
    }
}

impl Shapes {
    fn temperatures(&self) -> Vec<(f64, u64)> {
        self.temperatures.iter().map(|(&bits, &rows)| (f64::from_bits(bits), rows)).collect()
    }

    fn others(&self) -> String {
        listed(self.others.iter().map(|(&name, &rows)| (name.to_owned(), rows)))
    }
}

fn listed(named: impl Iterator<Item = (String, u64)>) -> String {
    named.map(|(name, rows)| format!("{name} ({})", counted(rows))).collect::<Vec<_>>().join(", ")
}

fn counted(rows: u64) -> String {
    format!("{rows} {}", if rows == 1 { "row" } else { "rows" })
}

// A span without a trained token has no effect on a trainer, whatever its parameters were.
fn is_trained(row: &RolloutRow, call: &CallSpan) -> bool {
    let place = usize::try_from(call.start).ok().zip(usize::try_from(call.end).ok());
    place.and_then(|(start, end)| row.loss_mask.get(start..end)).is_some_and(|mask| mask.contains(&1))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::export::testing::fixture::straight;

    fn row(change: impl Fn(&mut RolloutRow)) -> RolloutRow {
        let mut row = straight().rows.remove(0);
        change(&mut row);
        row
    }

    fn at(temperature: f64) -> RolloutRow {
        row(|row| row.calls.iter_mut().for_each(|call| call.temperature = Some(temperature)))
    }

    fn told(rows: impl IntoIterator<Item = RolloutRow>) -> Vec<String> {
        let mut sampled = Sampled::default();
        rows.into_iter().for_each(|row| sampled.add(&row));
        sampled.told()
    }

    #[test]
    fn one_temperature_is_told_unless_it_is_1() {
        assert!(told([row(|_| {}), at(1.0), at(1.0)]).is_empty());
        assert_eq!(told([at(0.7), at(0.7)]), ["2 rows sampled at temperature 0.7; set the trainer's to it"]);
        let greedy = told([at(0.0)]);
        assert!(greedy[0].starts_with("1 row sampled at temperature 0, "), "{greedy:?}");
    }

    #[test]
    fn several_temperatures_are_listed_be_it_of_one_row() {
        let mixed = row(|row| {
            row.calls[0].temperature = Some(1.0);
            row.calls[1].temperature = Some(0.7);
        });
        assert_eq!(
            told([at(0.7), mixed]),
            ["sampled at several temperatures, of which a trainer has one: 0.7 (2 rows), 1 (1 row)"]
        );
    }

    #[test]
    fn what_is_not_trained_may_be_sampled_at_any() {
        let shaped = |row: &mut RolloutRow| {
            row.calls[0].temperature = Some(0.2);
            row.calls[0].top_p = Some(0.5);
            row.loss_mask[2] = 0;
        };
        assert!(told([row(shaped)]).is_empty());
    }

    #[test]
    fn raw_logprobs_are_those_of_temperature_1() {
        let raw = |mut row: RolloutRow| {
            row.logprobs_mode = "raw_logprobs".to_owned();
            row
        };
        let expected =
            ["sampled at another temperature than 1 with raw logprobs, trained as if at 1: 0.7 (1 row)"];
        assert_eq!(told([raw(at(0.7)), raw(at(1.0)), at(1.0)]), expected);
        let truncated = raw(row(|row| row.calls[0].top_k = Some(20)));
        assert_eq!(
            told([truncated]),
            ["raw logprobs of another distribution than was sampled from: top_k (1 row)"]
        );
    }

    #[test]
    fn a_truncation_is_told_by_its_name() {
        let of = |sampling: &'static str| row(move |row| row.calls[1].sampling = sampling.to_owned());
        let top = row(|row| {
            row.calls[0].top_p = Some(0.9);
            row.calls[1].top_p = Some(0.9);
        });
        let nothing = row(|row| {
            row.calls[0].top_p = Some(1.0);
            row.calls[0].top_k = Some(-1);
            row.calls[0].sampling =
                r#"{"min_p":0,"presence_penalty":0.0,"repetition_penalty":1.0}"#.to_owned();
        });
        assert!(told([nothing]).is_empty());
        let rows = [top, of(r#"{"min_p":0.1}"#), of(r#"{"min_p":0.2}"#), of(r#"{"repetition_penalty":1.1}"#)];
        let expected = "logprobs of a distribution that sampling had shaped, where a trainer's is of all tokens: \
                        min_p (2 rows), repetition_penalty (1 row), top_p (1 row)";
        assert_eq!(told(rows), [expected]);
    }

    #[test]
    fn a_mix_of_models_is_told() {
        let of = |model: &'static str| row(move |row| row.model = model.to_owned());
        assert!(told([of("large"), of("large")]).is_empty());
        let untrained = row(|row| {
            row.model = "tiny".to_owned();
            row.loss_mask.fill(0);
        });
        assert!(told([of("large"), untrained]).is_empty());
        assert_eq!(
            told([of("small"), of("large"), of("large")]),
            ["trained together, calls of several models: large (2 rows), small (1 row)"]
        );
    }

    proptest! {
        #[test]
        fn whatever_a_request_says_is_read(sampling in ".*", min_p in 0.01..1.0_f64) {
            let of = |sampling: &str| row(|row| row.calls[0].sampling = sampling.to_owned());
            prop_assert!(told([of(&sampling)]).len() <= 1);
            let names = told([of(&format!(r#"{{"min_p":{min_p}}}"#))]);
            prop_assert!(names[0].ends_with("min_p (1 row)"), "{names:?}");
        }
    }
}
