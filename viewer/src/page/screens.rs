//! The page of the screens that a terminal agent saw. A script plays them in time. Without it they are one below the
//! other.

use maud::{Markup, html};

use super::format::{count, decimal};
use super::layout;
use super::link::Links;
use super::trial::path;
use crate::asset;
use crate::collection::screens::{Screen, Screens, Step};
use crate::collection::{Job, TrialContent};
use crate::figures::pretty::html_length;
use crate::figures::screens::call_of;

/// The maximum number of bytes of a window, unless one screen alone is larger.
const WINDOW: usize = 200_000;
/// The bytes of a screen's markup besides its texts.
const FRAME: usize = 400;
/// The bytes of the markup of a command besides its keystrokes.
const TYPED: usize = 32;
/// The speeds of the player, as a multiple of the recorded time.
const SPEEDS: [&str; 7] = ["0.5", "1", "2", "4", "8", "16", "32"];

/// Returns the page with the first window of screens. The script loads the others.
pub(crate) fn page(links: &Links, job: &Job, trial: &TrialContent, screens: &Screens) -> Markup {
    let all = screens.screens.len();
    let main = html! {
        h1 { "Screens of the terminal" }
        p.facts {
            "Screens: " (count(all as u64)) ". Recorded time: " (decimal(screens.seconds(all.saturating_sub(1)), 1))
            " s. Steps of the agent: " (count(screens.steps.len() as u64)) ". Source: " (visible(&screens.sources.join(", "))) "."
        }
        (layout::problems(&screens.problems.iter().map(|problem| visible(problem)).collect::<Vec<_>>()))
        (player(all))
        div #screens data-total=(all) { (window(links, job, trial, screens, 0)) }
        script defer src=(links.asset(&asset::SCREENS)) {}
    };
    layout::page(links, "Screens", &path(links, job, trial, Some("Screens")), None, &main)
}

/// Returns the controls, which are hidden without the script.
fn player(all: usize) -> Markup {
    html! {
        div #player .player hidden role="group" aria-label="Player" {
            button #previous-screen type="button" { "Previous (p)" }
            button #play type="button" { "Play (space)" }
            button #next-screen type="button" { "Next (n)" }
            label { "Speed " select #speed {
                @for speed in SPEEDS { option value=(speed) selected[speed == "1"] { (speed) "×" } }
            } }
            input #screen-slider type="range" min="0" max=(all.saturating_sub(1)) value="0" aria-label="Screen";
        }
    }
}

/// Returns the screens of the window that begins with `from`. If screens follow, the last element has the address of the
/// next window.
pub(crate) fn window(
    links: &Links,
    job: &Job,
    trial: &TrialContent,
    screens: &Screens,
    from: usize,
) -> Markup {
    let end = end_of_window(screens, from);
    let shown = screens.screens.iter().enumerate().take(end).skip(from);
    html! {
        @for (index, screen) in shown {
            section.screen data-at=(decimal(screens.seconds(index), 3)) {
                h2 { "Screen " (index + 1) " of " (screens.screens.len()) ", after " (decimal(screens.seconds(index), 1)) " s" }
                @if let Some(step) = screens.step_of(screen) { (step_of(links, job, trial, step)) }
                pre.terminal tabindex="0" { (visible(&screen.text)) }
            }
        }
        @if end < screens.screens.len() {
            @let next = links.screens_from(job.name(), &trial.entry.id, end);
            a.more href=(next) data-next=(next) { "Screens from " (end + 1) " on" }
        }
    }
}

/// Returns the index behind the last screen of the window that begins with `from`.
pub(crate) fn end_of_window(screens: &Screens, from: usize) -> usize {
    let mut bytes = 0;
    let rest = screens.screens.iter().skip(from);
    let fitting = rest.take_while(|screen| {
        let is_first = bytes == 0;
        bytes += FRAME
            + html_bytes(visible_letters(&screen.text))
            + screens.step_of(screen).map_or(0, step_length);
        is_first || bytes <= WINDOW
    });
    from.saturating_add(fitting.count()).min(screens.screens.len())
}

fn step_length(step: &Step) -> usize {
    let keys = step.keystrokes.iter().map(|keys| TYPED + html_bytes(typed_letters(keys)));
    html_bytes(visible_letters(&step.message)) + keys.sum::<usize>()
}

/// Returns the number of bytes of a text in a page.
fn html_bytes(letters: impl Iterator<Item = char>) -> usize {
    letters.map(html_length).sum()
}

/// Returns the answer of a step and its keystrokes, with a link to the call if it is known.
fn step_of(links: &Links, job: &Job, trial: &TrialContent, step: &Step) -> Markup {
    html! {
        p.step {
            "Step " (step.number)
            @if let Some(call) = call_of(&trial.rows, step) {
                ", " a href=(links.token(job.name(), &trial.entry.id, call.branch, call.start)) {
                    "call " code { (call.call_id) }
                }
            }
        }
        p.message { (visible(&step.message)) }
        @if !step.keystrokes.is_empty() {
            p { "Keys: " @for keys in &step.keystrokes { code.keys { (typed(keys)) } " " } }
        }
    }
}

impl Screens {
    /// Returns the seconds from the first screen to another.
    fn seconds(&self, index: usize) -> f64 {
        let at = |screen: Option<&Screen>| screen.map_or(0.0, |screen| screen.at);
        (at(self.screens.get(index)) - at(self.screens.first())).max(0.0)
    }

    fn step_of(&self, screen: &Screen) -> Option<&Step> {
        self.steps.get(screen.step?)
    }
}

/// Returns a text without control characters except newlines and tabs: a sign of each is in its place.
fn visible(text: &str) -> String {
    visible_letters(text).collect()
}

fn visible_letters(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|letter| if matches!(letter, '\n' | '\t') { letter } else { sign(letter) })
}

/// Returns keystrokes with a sign in the place of each control character.
fn typed(keys: &str) -> String {
    typed_letters(keys).collect()
}

fn typed_letters(keys: &str) -> impl Iterator<Item = char> {
    keys.chars().map(|letter| if letter == '\n' { '⏎' } else { sign(letter) })
}

/// Returns the sign of a control character, or another character itself.
fn sign(letter: char) -> char {
    match letter {
        '\0'..='\u{1f}' => char::from_u32(0x2400 + u32::from(letter)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\u{7f}' => '␡',
        letter if letter.is_control() => char::REPLACEMENT_CHARACTER,
        letter => letter,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn control_characters_have_signs() {
        assert_eq!(visible("a\u{1b}[2J\n\tb\u{9b}"), "a␛[2J\n\tb\u{fffd}");
        assert_eq!(typed("ls -l\n\u{3}"), "ls -l⏎␃");
    }

    proptest! {
        #[test]
        fn windows_follow_each_other_up_to_the_last_screen(lengths in prop::collection::vec(0..150_000_usize, 0..8)) {
            let screens = lengths.iter().map(|length| {
                let text = ["<", "\"", "\u{1b}"][length % 3].repeat(*length / 6);
                Screen { at: 0.0, text, step: None }
            });
            let screens = Screens { screens: screens.collect(), ..Screens::default() };
            let mut from = 0;
            while from < lengths.len() {
                let end = end_of_window(&screens, from);
                prop_assert!(end > from);
                let shown = screens.screens[from..end].iter().map(|screen| visible(&screen.text));
                let bytes: usize = shown.map(|text| html! { (text) }.into_string().len()).sum();
                prop_assert!(bytes <= WINDOW);
                from = end;
            }
            prop_assert_eq!(end_of_window(&screens, usize::MAX), lengths.len());
        }
    }
}
