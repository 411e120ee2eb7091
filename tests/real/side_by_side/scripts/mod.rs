//! All scripts.

mod commands;
mod ends;
mod formats;
mod full_screen;
mod summaries;
mod xml;

pub(super) use full_screen::scripts as full_screen;

use super::script::Script;

pub(super) fn all() -> Vec<Script> {
    [
        formats::scripts(),
        commands::scripts(),
        ends::scripts(),
        summaries::scripts(),
        xml::scripts(),
        full_screen(),
    ]
    .concat()
}
