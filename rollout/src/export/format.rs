//! Every export format by name, with its description and its defaults.
//!
//! **Forks.** The default is all branches if the trainer accepts several sequences of one trial as one trial, and
//! otherwise the longest branch alone. **Advantages.** If the trainer takes advantages, the default is its own rule. If
//! the trainer computes these from rewards, the default is none. **Failed trials.** The default is to drop these if the
//! trainer compares the rewards of groups of any size, so that its statistics are those of the other trials. Otherwise
//! the failed trials stay in their groups, masked.

use std::io::{Seek, Write};

use super::choices::named;
use super::exporter::{ExportError, Exporter};
use super::formats::agent_lightning::AgentLightningExporter;
use super::formats::areal::ArealExporter;
use super::formats::art::ArtExporter;
use super::formats::atif::AtifExporter;
use super::formats::atropos::AtroposExporter;
use super::formats::harbor::{HarborDetailsExporter, HarborExporter};
use super::formats::labels::LabelsExporter;
use super::formats::messages::MessagesExporter;
use super::formats::nemo_rl::NemoRlExporter;
use super::formats::openrlhf::OpenrlhfExporter;
use super::formats::pipelinerl::PipelineRlExporter;
use super::formats::preference::{PairRules, PreferenceExporter};
use super::formats::prime_rl::{PrimeRlExporter, PrimeRlOptions};
use super::formats::rllm::RllmExporter;
use super::formats::roll::RollExporter;
use super::formats::skyrl::SkyrlExporter;
use super::formats::slime::SlimeExporter;
use super::formats::tinker::TinkerExporter;
use super::formats::torchforge::TorchforgeExporter;
use super::formats::trl::TrlExporter;
use super::formats::verifiers::VerifiersExporter;
use super::formats::verl::{Verl, VerlExporter};
use super::formats::whole_rows::{JsonlExporter, ParquetExporter};
use super::pipeline::advantage::Advantage;
use super::pipeline::rules::{Comparison, Failed, OnFork, Rules, ShortGroups};

/// What single formats need in addition to the rules.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FormatOptions {
    /// The options of `prime-rl`.
    pub prime_rl: PrimeRlOptions,
    /// The options of `preference`.
    pub preference: PairRules,
    /// The names of all rewards of the input, for `verl`. The export fills the list.
    pub reward_names: Vec<String>,
}

/// How the trainer of a format finds the trials whose rewards it compares: see [`Comparison`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compares {
    Never,
    Named,
    Counted,
    /// Counted, unless the export has advantages, which the trainer then takes in place of rewards.
    CountedRewards,
}

/// What a format does with the messages of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageUse {
    /// The format has no place for them.
    Ignored,
    /// The format writes complete rows, which have messages if the user asks for them.
    OnRequest,
    /// The format writes the recorded ones.
    IfRecorded,
    /// The format consists of them.
    Required,
}

impl MessageUse {
    /// Whether an export reads the messages from the captures. `is_requested` if the user asks for them.
    pub fn is_read(self, is_requested: bool) -> bool {
        match self {
            Self::Ignored => false,
            Self::OnRequest => is_requested,
            Self::IfRecorded | Self::Required => true,
        }
    }
}

/// Defines the formats, one line per format: description, name, default for forks, default for advantages, default for
/// failed trials, how the trainer compares rewards, and exporter.
macro_rules! formats {
    ($(
        #[doc = $about:literal]
        $format:ident = $name:literal, $on_fork:ident, $advantage:ident, $failed:ident, $compares:ident, |$out:ident, $options:pat_param| $exporter:expr;
    )*) => {
        named! {
            /// A file format for a trainer.
            pub enum Format { $(#[doc = $about] $format = $name,)* }
        }

        impl Format {
            fn default_on_fork(self) -> OnFork {
                match self {
                    $(Self::$format => OnFork::$on_fork,)*
                }
            }

            /// The default rule for advantages.
            pub fn advantage(self) -> Advantage {
                match self {
                    $(Self::$format => Advantage::$advantage,)*
                }
            }

            /// The default treatment of failed trials.
            pub fn failed(self) -> Failed {
                match self {
                    $(Self::$format => Failed::$failed,)*
                }
            }

            fn compares(self) -> Compares {
                match self {
                    $(Self::$format => Compares::$compares,)*
                }
            }

            /// Starts a file of this format. The output must be seekable, because some formats write their header at
            /// the end.
            ///
            /// # Errors
            /// The output failed.
            pub fn exporter<'a>(
                self,
                out: impl Write + Seek + Send + 'a,
                options: &FormatOptions,
            ) -> Result<Box<dyn Exporter + 'a>, ExportError> {
                match self {
                    $(Self::$format => {
                        let ($out, $options) = (out, options);
                        Ok(Box::new($exporter))
                    })*
                }
            }
        }
    };
}

impl Format {
    /// The default treatment of forked trials, in an export with these advantages.
    pub fn on_fork(self, advantage: Advantage) -> OnFork {
        match self.comparison(advantage, ShortGroups::Pad) {
            // A trainer that counts rows would count a forked trial several times.
            Comparison::Counted(_) if self.compares() == Compares::CountedRewards => OnFork::Longest,
            Comparison::Counted(_) | Comparison::Named | Comparison::Never => self.default_on_fork(),
        }
    }

    /// The rules of an export without any option.
    pub fn rules(self) -> Rules {
        let advantage = self.advantage();
        Rules {
            on_fork: self.on_fork(advantage),
            failed: self.failed(),
            advantage,
            comparison: self.comparison(advantage, ShortGroups::Pad),
            open_groups: false,
            untrained_groups: false,
            superseded: false,
            train_constrained: false,
            reward: None,
            staleness: None,
            min_reward: None,
            best_of_group: None,
        }
    }

    /// Whether a record of the format is made of all trials of a group.
    pub fn has_record_per_group(self) -> bool {
        matches!(self, Self::Preference | Self::Atropos)
    }

    /// What the format does with the messages of calls.
    pub fn messages(self) -> MessageUse {
        match self {
            Self::Jsonl | Self::Parquet => MessageUse::OnRequest,
            Self::Atif => MessageUse::IfRecorded,
            Self::Messages | Self::Preference => MessageUse::Required,
            _ => MessageUse::Ignored,
        }
    }

    /// How the trainer finds the trials that it compares, in an export with these advantages.
    pub fn comparison(self, advantage: Advantage, short_groups: ShortGroups) -> Comparison {
        match self.compares() {
            Compares::Never => Comparison::Never,
            Compares::Named => Comparison::Named,
            Compares::CountedRewards if advantage != Advantage::None => Comparison::Never,
            Compares::Counted | Compares::CountedRewards => Comparison::Counted(short_groups),
        }
    }
}

formats! {
    /// rollout/1: complete rows, one JSON line per branch
    Jsonl = "jsonl", All, None, Mask, Never, |out, _| JsonlExporter::new(out);
    /// rollout/1: complete rows, one Parquet row per branch
    Parquet = "parquet", All, None, Mask, Never, |out, _| ParquetExporter::new(out)?;
    /// Chat messages for supervised fine-tuning (TRL 1.16 and others): a conversation per branch
    Messages = "messages", All, None, Drop, Never, |out, _| MessagesExporter::new(out);
    /// Pairs of conversations for DPO (TRL 1.16): the best and the worst trial of a group
    Preference = "preference", Longest, None, Drop, Never, |out, options| PreferenceExporter::new(out, options.preference);
    /// Pre-tokenised rows for supervised fine-tuning (TRL 1.16): input_ids, attention_mask and labels per branch
    Labels = "labels", All, None, Drop, Never, |out, _| LabelsExporter::new(out);
    /// verifiers 0.4: a trace of its v1 interface per trial
    Verifiers = "verifiers", All, None, Mask, Never, |out, _| VerifiersExporter::new(out);
    /// prime-rl (559b447): packed micro-batches of one rank and step, in msgpack
    PrimeRl = "prime-rl", All, Mean, Mask, Never, |out, options| PrimeRlExporter::new(out, options.prime_rl.clone());
    /// tinker 0.38: a Datum per branch
    Tinker = "tinker", All, Mean, Mask, Never, |out, _| TinkerExporter::new(out);
    /// SkyRL 0.4: step-wise generator output of a trial, a branch a step
    Skyrl = "skyrl", All, None, Drop, Named, |out, _| SkyrlExporter::new(out);
    /// TRL 1.16: a RolloutSample of the asynchronous GRPO trainer per branch
    Trl = "trl", All, GrpoPopulation, Mask, Never, |out, _| TrlExporter::new(out);
    /// verl 0.9: the AgentLoopOutputs of a trial
    Verl = "verl", All, None, Drop, Named, |out, options| {
        VerlExporter::with_shape(out, Verl::with_reward_names(options.reward_names.clone()))
    };
    /// slime (624b824): a Sample per branch
    Slime = "slime", All, None, Mask, Counted, |out, _| SlimeExporter::new(out);
    /// miles (31f1ca9): a Sample of slime per branch
    Miles = "miles", All, None, Drop, Named, |out, _| SlimeExporter::new(out);
    /// OpenRLHF 0.11: the response of an agent executor per trial
    Openrlhf = "openrlhf", Longest, None, Mask, Counted, |out, _| OpenrlhfExporter::new(out);
    /// AReaL 1.0: the tensors of an episode per trial, with the advantages as rewards
    Areal = "areal", All, Grpo, Mask, CountedRewards, |out, _| ArealExporter::new(out);
    /// NeMo-RL (7ea279a): the result of its Gym environment per trial
    NemoRl = "nemo-rl", Longest, None, Drop, Named, |out, _| NemoRlExporter::new(out);
    /// rLLM (9beb6e0): an Episode per trial
    Rllm = "rllm", All, GrpoPopulation, Drop, Named, |out, _| RllmExporter::new(out);
    /// agentlightning 1.0: a CompletedRollout with its triplets per trial
    AgentLightning = "agent-lightning", All, None, Drop, Named, |out, _| AgentLightningExporter::new(out);
    /// openpipe-art 0.5: a trajectory with a choice per call, per trial
    Art = "art", All, None, Drop, Named, |out, _| ArtExporter::new(out);
    /// ROLL (8eb27cc): a row of its DataProto per branch; all branches only with advantages
    Roll = "roll", Longest, None, Drop, Named, |out, _| RollExporter::new(out);
    /// PipelineRL (58d3934): a TrainingText per call, with the advantages as rewards
    PipelineRl = "pipelinerl", All, Rloo, Mask, Counted, |out, _| PipelineRlExporter::new(out);
    /// torchforge (6e77f0b): an Episode per call
    Torchforge = "torchforge", All, Grpo, Mask, Never, |out, _| TorchforgeExporter::new(out);
    /// Harbor's generic rollout {reward, token_ids, mask_ids} per branch, without logprobs
    Harbor = "harbor", Longest, None, Mask, Never, |out, _| HarborExporter::new(out);
    /// harbor 0.25: rollout_details of a trial, turn by turn
    HarborDetails = "harbor-details", All, None, Mask, Never, |out, _| HarborDetailsExporter::new(out);
    /// ATIF-v1.8 (harbor 0.25): a trajectory per trial, further branches embedded
    Atif = "atif", All, None, Mask, Never, |out, _| AtifExporter::new(out);
    /// atroposlib 0.4: a scored group per line, the body of POST /scored_data
    Atropos = "atropos", Longest, None, Mask, Counted, |out, _| AtroposExporter::new(out);
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Cursor;

    use super::super::choices::Named;
    use super::super::testing::fixture::{forked, straight, with_messages};
    use super::*;

    #[test]
    fn names_are_unique_and_find_their_format() {
        let names: HashSet<_> = Format::ALL.iter().map(|format| format.name()).collect();
        assert_eq!(names.len(), Format::ALL.len());
        assert!(Format::ALL.iter().all(|format| Format::named(format.name()) == Some(*format)));
        assert_eq!(Format::named("csv"), None);
    }

    /// Exports a straight trial and the default branches of a forked trial, with the advantage that the format
    /// requires.
    #[test]
    fn every_format_takes_a_fork_as_it_does_by_default() {
        let mut options = FormatOptions::default();
        options.prime_rl.assumed_temperature = Some(1.0);
        for format in Format::ALL {
            let mut file = Cursor::new(Vec::new());
            let mut exporter = format.exporter(&mut file, &options).unwrap();
            for mut trial in [straight(), forked()].map(with_messages) {
                if format.advantage() == Advantage::None {
                    trial.advantage = None;
                }
                if format.on_fork(format.advantage()) == OnFork::Longest && trial.rows.len() > 1 {
                    trial.left_out = 1;
                    trial.rows.remove(0);
                }
                exporter.write(trial).unwrap_or_else(|error| panic!("{}: {error}", format.name()));
            }
            exporter.finish().unwrap();
            assert!(!file.into_inner().is_empty(), "{}", format.name());
        }
    }
}
