//! A page with a message instead of content.

use maud::{Markup, html};

use super::layout;
use super::link::Links;

/// Returns a page for an error. `text` states the problem and what to do.
pub(crate) fn page(links: &Links, title: &str, text: &str) -> Markup {
    let main = html! { h1 { (title) } p { (text) } p { a href=(links.jobs()) { "All jobs" } } };
    layout::page(
        links,
        title,
        &[("Jobs".to_owned(), Some(links.jobs())), (title.to_owned(), None)],
        None,
        &main,
    )
}
