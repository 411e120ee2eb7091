//! All scripts.

mod commands;
mod ends;
mod formats;
mod full_screen;
mod summaries;
mod xml;

pub(super) use full_screen::scripts as full_screen;

use std::collections::BTreeSet;

use rolltap_testing::sample;

use super::script::Script;

/// Returns every script in the long tier, and every third one of each kind in the default tier, because Terminus-2
/// takes seconds of a core for each.
pub(super) fn sampled() -> Vec<Script> {
    kinds().into_iter().flat_map(|scripts| scripts.into_iter().step_by(sample(3, 1))).collect()
}

/// Returns the names of all scripts.
pub(super) fn names() -> BTreeSet<&'static str> {
    kinds().iter().flatten().map(|script| script.name).collect()
}

fn kinds() -> [Vec<Script>; 6] {
    [
        formats::scripts(),
        commands::scripts(),
        ends::scripts(),
        summaries::scripts(),
        xml::scripts(),
        full_screen(),
    ]
}
