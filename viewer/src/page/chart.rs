//! Charts as SVG. Positions and sizes are attributes, because the content security policy admits no inline styles.

use maud::{Markup, html};

use super::format::{count, decimal};
use crate::figures::histogram::Bar;

/// The size of a histogram in pixels, without the labels.
const WIDTH: usize = 360;
const HEIGHT: usize = 96;

/// Returns a histogram, with a table for screen readers. Nothing if there are no bars.
pub(crate) fn histogram(bars: &[Bar]) -> Markup {
    if bars.is_empty() {
        return html! {};
    }
    let highest = bars.iter().map(|bar| bar.count).max().unwrap_or_default().max(1);
    let width = WIDTH / bars.len().max(1);
    html! {
        figure {
            svg.histogram aria-hidden="true" width=(WIDTH) height=(HEIGHT + 20)
                viewBox=(format!("0 0 {WIDTH} {}", HEIGHT + 20)) {
                @for (place, bar) in bars.iter().enumerate() {
                    @let height = bar.count * HEIGHT / highest;
                    rect x=(place * width + 1) y=(HEIGHT - height) width=(width.saturating_sub(2).max(1))
                        height=(height) { title { (label(bar)) ": " (count(bar.count)) } }
                    @if bars.len() <= 12 {
                        text x=(place * width + width / 2) y=(HEIGHT + 14) text-anchor="middle" { (decimal(bar.from, 2)) }
                    }
                }
                @if bars.len() > 12 {
                    @if let (Some(first), Some(last)) = (bars.first(), bars.last()) {
                        text x="0" y=(HEIGHT + 14) { (decimal(first.from, 2)) }
                        text x=(WIDTH) y=(HEIGHT + 14) text-anchor="end" { (decimal(last.to, 2)) }
                    }
                }
            }
            table.visually-hidden {
                caption { "Trials by reward" }
                @for bar in bars { tr { th scope="row" { (label(bar)) } td { (bar.count) } } }
            }
        }
    }
}

fn label(bar: &Bar) -> String {
    if bar.from == bar.to {
        return decimal(bar.from, 4);
    }
    format!("{} to {}", decimal(bar.from, 4), decimal(bar.to, 4))
}
