//! A page with a message instead of content.

use maud::{Markup, html};

use super::layout;

/// Returns a page for an error. `text` states the problem and what to do.
pub(crate) fn page(title: &str, text: &str) -> Markup {
    let main = html! { h1 { (title) } p { (text) } p { a href="/" { "All jobs" } } };
    layout::page(title, &[("Jobs".to_owned(), Some("/".to_owned())), (title.to_owned(), None)], None, &main)
}
