use proptest::prelude::*;

use super::super::{AnswerError, AnswerFormat, ModelAnswer};
use super::*;

fn parse(text: &str) -> Result<ModelAnswer, AnswerError> {
    AnswerFormat::Xml.parse(text)
}

/// Returns a response with these commands, as XML text.
fn response_of(commands: &str) -> String {
    format!("<response><analysis>a</analysis><plan>p</plan><commands>{commands}</commands></response>")
}

fn only_warning(text: &str) -> String {
    let warnings = parse(text).unwrap().warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    warnings.concat()
}

#[test]
fn a_clean_answer_is_taken_to_the_letter() {
    let text = "<response>\n<analysis>\nA < B & C\n</analysis>\n<plan>p</plan>\n<commands>\n\
        <keystrokes duration=\"0.5\">grep '<b>' x && echo \"$Y\"\n</keystrokes>\n\
        <keystrokes duration=\"2\">C-c</keystrokes>\n<keystrokes duration=\"99\"></keystrokes>\n</commands>\n\
        <task_complete> True </task_complete>\n</response>\n";
    let answer = parse(text).unwrap();
    let commands = [
        Command::new("grep '<b>' x && echo \"$Y\"\n", 0.5),
        Command::new("C-c", 2.0),
        Command::new("", 60.0),
    ];
    assert_eq!((answer.analysis.as_str(), answer.plan.as_str()), ("A < B & C", "p"));
    assert_eq!(answer.commands, commands);
    assert!(answer.task_complete);
    assert_eq!(answer.warnings, Vec::<String>::new());
}

#[test]
fn what_is_not_as_it_should_be_but_clear_is_a_warning() {
    let good = response_of("<keystrokes duration=\"1\">ls\n</keystrokes>");
    for (text, part) in [
        (format!("Sure: {good}"), "before <response>"),
        (format!("{good} There."), "after </response>"),
        (good.replace("</response>", ""), "was not closed"),
        (good.replace("<plan>p</plan>", ""), "no <plan>"),
        (good.replace("<plan>", "<note/><plan>"), "<note>, which is no part"),
        (good.replace("<plan>", "<plan>q</plan><plan>"), "more than one <plan>"),
        (
            good.replace("<plan>p</plan>", "").replace("</commands>", "</commands><plan>p</plan>"),
            "in this order",
        ),
        (good.replace(" duration=\"1\"", ""), "no duration"),
        (good.replace("\"1\"", "1"), "in quotes"),
        (good.replace("\"1\"", "'1'"), "double quotes"),
        (good.replace("\"1\"", "\"soon\""), "not a number"),
        (good.replace("\"1\"", "\"1\" timeout=\"3\""), "unknown attribute, which was ignored: timeout"),
        (good.replace("ls", "ls &gt; x"), "&gt; was typed as it stands"),
        (good.replace("ls", "ls\\r\\n"), "line break in the keystrokes is enough"),
        (response_of(""), "no commands"),
        (response_of("").replace("<commands></commands>", "<commands/>"), "no commands"),
        (good.replace("</commands>", "<wait/></commands>"), "<wait> among the commands"),
    ] {
        let warning = only_warning(&text);
        assert!(warning.contains(part), "{part}: {warning}");
    }
    let two = response_of(
        "<keystrokes duration=\"1\">cd x</keystrokes><keystrokes duration=\"1\">ls\n</keystrokes>",
    );
    assert!(only_warning(&two).contains("continue its line"));
}

#[test]
fn the_first_of_several_responses_is_carried_out() {
    let first = response_of("<keystrokes duration=\"1\">one\n</keystrokes>");
    let answer = parse(&format!("{first}{}", first.replace("one", "two"))).unwrap();
    assert_eq!(answer.commands, [Command::new("one\n", 1.0)]);
    assert!(answer.warnings.iter().any(|warning| warning.contains("more than one <response>")));
}

#[test]
fn what_cannot_be_carried_out_is_an_error() {
    for (text, part) in [
        ("I am done.", "no <response>"),
        ("<response> </response>", "is empty"),
        ("<response><analysis>a</analysis><plan>p</plan></response>", "no <commands>"),
        ("<response><commands><keystrokes duration=\"1\">rm -r /", "no <commands> with a closing"),
    ] {
        let problem = parse(text).unwrap_err().problem;
        assert!(problem.contains(part), "{part}: {problem}");
    }
}

#[test]
fn only_its_own_element_completes_the_task() {
    let quoted =
        response_of("<keystrokes duration=\"1\">echo '<task_complete>true</task_complete>'\n</keystrokes>");
    assert!(!parse(&quoted).unwrap().task_complete);
    for element in
        ["<task_complete>false</task_complete>", "<task_complete/>", "<task_complete></task_complete>"]
    {
        let text = quoted.replace("<plan>", &format!("{element}<plan>"));
        assert!(!parse(&text).unwrap().task_complete, "{element}");
    }
    let bare = "<response><analysis/><plan/><task_complete>TRUE</task_complete></response>";
    let answer = parse(bare).unwrap();
    assert!(answer.task_complete && answer.commands.is_empty());
}

#[test]
fn keystrokes_that_close_themselves_wait() {
    let text = response_of("<keystrokes duration=\"9\"/><keystrokes duration=\"1\">ls\n</keystrokes>");
    assert_eq!(parse(&text).unwrap().commands, [Command::new("", 9.0), Command::new("ls\n", 1.0)]);
}

#[test]
fn a_cut_off_text_is_salvaged_where_its_response_is_whole() {
    let whole = response_of("<keystrokes duration=\"1\">ls\n</keystrokes>");
    let salvaged = AnswerFormat::Xml.salvage(&format!("{whole}\nAnd then I"));
    assert_eq!(salvaged.unwrap().commands, [Command::new("ls\n", 1.0)]);
    for lost in [
        whole.replace("</response>", ""),
        whole.replace("</commands>", ""),
        whole.replace("<plan>", "<commands><keystrokes duration=\"1\">x</keystrokes></commands><plan>"),
        format!("<response>{whole}"),
    ] {
        assert_eq!(AnswerFormat::Xml.salvage(&lost), None, "{lost}");
    }
    assert_eq!(
        AnswerFormat::Json.salvage("{\"analysis\": \"\", \"plan\": \"\", \"commands\": []} and"),
        None
    );
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(text in any::<String>()) {
        let _read = (parse(&text), AnswerFormat::Xml.salvage(&text));
    }

    #[test]
    fn any_text_that_resembles_an_answer_is_read_without_panic(
        text in "(</?(response|analysis|plan|commands|keystrokes|task_complete|x)( duration=[\"']?[0-9.]{0,3}[\"']?)?/?>|[<>&\"'= \nä]){0,40}"
    ) {
        let _read = (parse(&text), AnswerFormat::Xml.salvage(&text));
    }

    #[test]
    fn a_cut_answer_never_types_keystrokes_that_are_not_whole(
        keystrokes in prop::collection::vec("[ -;=-~\n]{0,20}", 1..4), cut in any::<prop::sample::Index>()
    ) {
        let commands: String =
            keystrokes.iter().map(|keys| format!("<keystrokes duration=\"1\">{keys}</keystrokes>")).collect();
        let text = response_of(&commands);
        if let Ok(answer) = parse(text.get(..cut.index(text.len())).unwrap()) {
            prop_assert!(answer.commands.iter().zip(&keystrokes).all(|(read, written)| read.keystrokes == *written));
        }
    }

    #[test]
    fn keystrokes_are_taken_as_they_stand(
        commands in prop::collection::vec((any::<String>(), 0.0f64..60.0), 1..4), task_complete: bool
    ) {
        let closes = |text: &str| ["</keystrokes>", "</commands>", "</response>"].iter().any(|tag| text.contains(tag));
        prop_assume!(!commands.iter().any(|(keys, _)| closes(keys)));
        let elements: String = commands
            .iter()
            .map(|(keys, wait)| format!("<keystrokes duration=\"{wait}\">{keys}</keystrokes>"))
            .collect();
        let text = response_of(&elements)
            .replace("</response>", &format!("<task_complete>{task_complete}</task_complete></response>"));
        let read = parse(&text).unwrap();
        let expected: Vec<_> = commands.iter().map(|(keys, wait)| Command::new(keys.clone(), *wait)).collect();
        prop_assert_eq!(read.commands, expected);
        prop_assert_eq!(read.task_complete, task_complete);
    }
}

#[test]
fn fuzz_xml_answer() {
    rolltap_testing::fuzz!("xml_answer", |text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        // A command's keys are part of the text, byte for byte.
        if let Ok(answer) = parse(text) {
            assert!(answer.commands.iter().all(|command| text.contains(&*command.keystrokes)));
        }
        drop(AnswerFormat::Xml.salvage(text));
    });
}
