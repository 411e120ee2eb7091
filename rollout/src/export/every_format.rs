//! What all formats that are JSON Lines of a trainer's objects have in common.

use super::areal::ArealExporter;
use super::exporter::{Exporter, Trial};
use super::fixture::straight;
use super::nemo_rl::NemoRlExporter;
use super::openrlhf::OpenrlhfExporter;
use super::read_back::Output;
use super::rllm::RllmExporter;
use super::skyrl::SkyrlExporter;
use super::slime::SlimeExporter;
use super::trl::TrlExporter;
use super::verl::VerlExporter;

fn every_format() -> [(&'static str, Box<dyn Exporter>, Output); 8] {
    fn of<E: Exporter + 'static>(
        name: &'static str,
        new: fn(Output) -> E,
    ) -> (&'static str, Box<dyn Exporter>, Output) {
        let output = Output::default();
        (name, Box::new(new(output.clone())), output)
    }
    [
        of("areal", ArealExporter::new),
        of("nemo_rl", NemoRlExporter::new),
        of("openrlhf", OpenrlhfExporter::new),
        of("rllm", RllmExporter::new),
        of("skyrl", SkyrlExporter::new),
        of("slime", SlimeExporter::new),
        of("trl", TrlExporter::new),
        of("verl", VerlExporter::new),
    ]
}

/// What spoils a trial, and what is told of it.
type Spoil = (fn(&mut Trial), &'static str);

/// Several trainers take each of these without a word.
#[test]
fn broken_rows_are_refused_by_trial_and_place_and_leave_nothing() {
    let spoil: [Spoil; 5] = [
        (|trial| trial.rows[0].logprobs[2] = f32::NAN, "logprobs[2] is NaN"),
        (|trial| trial.rows[0].logprobs[5] = 0.5, "logprobs[5] is 0.5"),
        (|trial| trial.rows[0].logprobs.truncate(5), "its lists per token have 6 and [6, 6, 6, 5] values"),
        (|trial| trial.rows[0].has_media = true, "it held images, audio or video"),
        (|trial| trial.reward = Some(f64::NAN), "its reward is NaN"),
    ];
    for (spoil, told) in spoil {
        for (name, mut exporter, output) in every_format() {
            let mut trial = Trial { group: None, ..straight() };
            spoil(&mut trial);
            let refusal = exporter.write(trial).unwrap_err().to_string();
            assert!(refusal.starts_with("trial straight, branch 0: "), "{name}: {refusal}");
            assert!(refusal.contains(told), "{name}: {refusal}");
            assert_eq!(output.bytes(), b"", "{name}");
        }
    }
}

#[test]
fn an_export_of_no_trial_is_an_empty_file() {
    for (name, exporter, output) in every_format() {
        assert_eq!(exporter.finish().unwrap(), [], "{name}");
        assert_eq!(output.bytes(), b"", "{name}");
    }
}
