//! Colours of output for people. Writers remove them where a reader does not want them.

use std::io::{self, IsTerminal};

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// A reward of 1, and anything else that went well.
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
/// A lower reward.
pub(crate) const WEAK: Style = AnsiColor::Yellow.on_default();
/// A failure.
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
/// Secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// The most important text.
pub(crate) const BOLD: Style = Style::new().bold();
/// Everything else.
pub(crate) const PLAIN: Style = Style::new();

/// Returns the style of a reward. Harbor's convention: a reward of 1 is a pass.
pub(crate) fn of_reward(reward: f64) -> Style {
    if reward >= 1.0 { GOOD } else { WEAK }
}

/// Whether colours belong into this stream: on a terminal that has them, unless `NO_COLOR` or `TERM=dumb` is set. The
/// variable `CLICOLOR_FORCE` decides for streams that are no terminal.
pub fn has_colours(stream: &impl RawStream) -> bool {
    AutoStream::choice(stream) != ColorChoice::Never
}

/// Whether lines of standard error can be redrawn.
pub(crate) fn is_stderr_redrawable() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    io::stderr().is_terminal() && !is_dumb
}

/// A line of styled text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(Vec<(Style, String)>);

impl Line {
    /// Appends text without control characters.
    #[must_use]
    pub(crate) fn with(mut self, style: Style, text: impl AsRef<str>) -> Self {
        self.0.push((style, without_controls(text.as_ref())));
        self
    }

    /// Appends text and fills it with spaces up to this width. Longer text is truncated.
    #[must_use]
    pub(crate) fn column(self, style: Style, text: impl AsRef<str>, width: usize) -> Self {
        let text = truncated(&without_controls(text.as_ref()), width);
        let filling = " ".repeat(width.saturating_sub(text.width()));
        self.with(style, text).with(PLAIN, filling)
    }

    /// Appends text after the spaces that align its end at this width.
    #[must_use]
    pub(crate) fn right(self, style: Style, text: impl AsRef<str>, width: usize) -> Self {
        let text = truncated(&without_controls(text.as_ref()), width);
        let filling = " ".repeat(width.saturating_sub(text.width()));
        self.with(PLAIN, filling).with(style, text)
    }

    /// Returns the line with escape sequences, truncated to this width.
    pub(crate) fn render(&self, width: usize) -> String {
        let mut left = width;
        let mut line = String::new();
        for (style, text) in &self.0 {
            let text = truncated(text, left);
            left = left.saturating_sub(text.width());
            let blank = *style == PLAIN || text.is_empty();
            line.push_str(&if blank { text } else { painted(*style, &text) });
        }
        line
    }
}

fn without_controls(text: &str) -> String {
    text.replace(char::is_control, " ")
}

/// Returns the text with the escape sequences of a style.
pub(crate) fn painted(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Shortens a text to this width. A shortened text ends with an ellipsis.
pub(crate) fn truncated(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |character: &char| {
        let needed = character.width().unwrap_or(0);
        let fits = needed <= left;
        left = if fits { left - needed } else { 0 };
        fits
    };
    let mut short: String = text.chars().take_while(fits).collect();
    if width > 0 {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_whatever_the_width_of_a_character() {
        let line = Line::default().column(BAD, "漢字", 6).right(PLAIN, "12", 4).with(DIM, "|");
        assert_eq!(anstream::adapter::strip_str(&line.render(80)).to_string(), "漢字    12|");
        assert_eq!(truncated("漢字漢字", 5), "漢字…");
        assert_eq!((truncated("abc", 0), truncated("abc", 1)), (String::new(), "…".to_owned()));
    }

    proptest::proptest! {
        #[test]
        fn a_line_never_exceeds_its_width(texts in proptest::collection::vec(".{0,30}", 0..6), width in 0_usize..60) {
            let line = texts.iter().fold(Line::default(), |line, text| line.column(BAD, text, 20).with(DIM, text));
            let shown = anstream::adapter::strip_str(&line.render(width)).to_string();
            proptest::prop_assert!(shown.width() <= width, "{shown:?}");
        }
    }
}
