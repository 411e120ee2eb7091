//! The frame of every page: head, path, main part, help.

use std::collections::HashSet;

use maud::{DOCTYPE, Markup, html};

use super::link::Links;
use crate::asset;

/// A step of the path from the list of jobs to a page: its text and its address.
pub(crate) type Step = (String, Option<String>);

/// The keys of every page, for the help.
const KEYS: [(&str, &str); 11] = [
    ("j, k", "next or previous row, trial or branch"),
    ("Enter", "open the marked row"),
    ("u", "up: from branch to trial, group, job, jobs"),
    ("n, p", "next or previous answer of the branch, or screen"),
    ("Space", "play or pause the screens"),
    ("d", "next place at which a sample parts from the first"),
    ("←, →", "previous or next token"),
    ("c", "next colouring of the tokens"),
    ("i", "show or hide the ids beside the texts of tokens"),
    ("/", "filter"),
    ("?", "this help"),
];

/// Returns a whole page. `follows` is the address that sends an event when the page is out of date.
pub(crate) fn page(
    links: &Links,
    title: &str,
    path: &[Step],
    follows: Option<String>,
    main: &Markup,
) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · rolltap" }
                link rel="stylesheet" href=(links.asset(&asset::STYLE));
                script defer src=(links.asset(&asset::SCRIPT)) {}
            }
            body data-follows=[follows] {
                a.skip href="#main" { "Skip to content" }
                header {
                    nav aria-label="Path" { ol { @for (text, address) in path {
                        li { @match address {
                            Some(address) => a href=(address) { (text) },
                            None => span aria-current="page" { (text) },
                        } }
                    } } }
                    button #help-button type="button" aria-haspopup="dialog" { "Keys (?)" }
                }
                main #main tabindex="-1" { (main) }
                dialog #help aria-label="Keys" {
                    h2 { "Keys" }
                    dl { @for (key, meaning) in KEYS { dt { kbd { (key) } } dd { (meaning) } } }
                    form method="dialog" { button { "Close" } }
                }
                p #announcement .visually-hidden aria-live="polite" {}
            }
        }
    }
}

/// A list of what could not be read or decided, each problem once. Empty if there is nothing.
pub(crate) fn problems(problems: &[String]) -> Markup {
    // The samples of a group may have a problem in common.
    let mut seen = HashSet::new();
    html! {
        @if !problems.is_empty() {
            section.problems role="alert" aria-label="Problems" {
                ul { @for problem in problems.iter().filter(|problem| seen.insert(*problem)) { li { (problem) } } }
            }
        }
    }
}
