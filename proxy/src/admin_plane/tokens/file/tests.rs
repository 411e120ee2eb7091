use proptest::prelude::*;

use super::*;
use crate::admin_plane::tokens::create::NewAdminToken;

const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn entry(name: &str, hash: &str) -> String {
    format!("[[token]]\nname = \"{name}\"\nroles = [\"read\"]\nsha256 = \"{hash}\"\n")
}

fn error(text: &str) -> String {
    AdminTokens::parse(text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn a_file_has_names_roles_hashes_and_times() {
    let text = format!(
        "# of the team\n{}\n[[token]]\nname = \"b\"\nroles = [\"operate\", \"open\", \"open\"]\nsha256 = \"{}\"\n\
         expires = 2027-01-31 01:00:00+01:00\n",
        entry("a", HASH),
        HASH.replace('0', "1")
    );
    let tokens = AdminTokens::parse(text.as_bytes()).unwrap();
    let read: Vec<_> = tokens
        .iter()
        .map(|token| {
            let roles: Vec<_> = token.roles.iter().map(|role| role.as_str()).collect();
            (token.name.as_str(), roles.join(" "), token.expires().map(|expires| expires.to_string()))
        })
        .collect();
    let expires = Some("2027-01-31T00:00:00Z".to_owned());
    assert_eq!(read, [("a", "read".to_owned(), None), ("b", "open operate".to_owned(), expires)]);
}

#[test]
fn each_problem_has_its_line_and_its_reason() {
    let (first, hash) = (entry("a", HASH), HASH.replace('0', "1"));
    for (text, expected) in [
        (String::new(), "line 1: the file has no [[token]]; `rolltap admin-token` adds one"),
        (format!("{first}{}", entry("a", &hash)), "line 6: the token of line 2 has the same name"),
        (format!("{first}{}", entry("b", HASH)), "line 8: the token of line 2 has the same sha256"),
        (
            first.replace("[\"read\"]", "[]"),
            "line 3: a token has one of the roles open, reward, read, operate",
        ),
        (first.replace("\"read\"", "\"root\""), "line 3: a role is one of open, reward, read, operate"),
        (first.replace("\"read\"", "\"open\",\n\"root\""), "line 4: a role is one of"),
        (first.replace("[\"read\"]", "\"read\""), "line 3: the value has the wrong type"),
        (
            first.replace(HASH, &HASH[1..]),
            "line 4: sha256 is the SHA-256 hash of the token, as 64 hexadecimal digits",
        ),
        (first.replace("\"a\"", "\"a b\""), "line 2: a name has 1 to 64 letters"),
        (first.replace("\"a\"", "\"admin-token-file\""), "line 2: the name admin-token-file is reserved"),
        (first.replace("name", "nmae"), "line 2: unknown field `nmae`"),
        (first.replace("name = \"a\"\n", ""), "line 1: missing field `name`"),
        (format!("{first}expires = 2027-01-31T00:00:00\n"), "line 5: expires is a time with its zone"),
        (format!("{first}expires = \"soon\"\n"), "line 5: "),
        (format!("{first}expires = \n"), "line 5: "),
        (format!("token = 1\n{first}"), "line "),
    ] {
        let error = error(&text);
        assert!(error.starts_with(expected), "{error:?} of {text}");
    }
    assert_eq!(AdminTokens::parse(b"# one\n\xff").unwrap_err().to_string(), "line 2: the text is not UTF-8");
}

#[test]
fn a_token_in_the_place_of_its_hash_is_not_repeated() {
    let token = format!("rolltap-admin-{HASH}");
    let first = entry("a", &token);
    for text in [
        first.clone(),
        first.replace("[\"read\"]", &format!("\"{token}\"")),
        format!("{first}expires = \"{token}\""),
    ] {
        assert!(!error(&text).contains(&HASH[..16]), "{}", error(&text));
    }
}

#[test]
fn what_is_no_plain_file_of_a_usable_size_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tokens.toml");
    let error = || AdminTokens::read(&path).unwrap_err().to_string();
    assert!(error().contains("No such file"), "{}", error());
    std::fs::write(&path, " ".repeat(LARGEST as usize + 1)).unwrap();
    assert!(error().ends_with("it has more than 1048576 bytes"), "{}", error());
    let error = AdminTokens::read(dir.path()).unwrap_err().to_string();
    assert!(error.ends_with("it is not a plain file"), "{error}");
}

/// Text that resembles a file of tokens.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("[[token]]\n".to_owned()),
        Just("name = \"a\"\n".to_owned()),
        Just(format!("sha256 = \"{HASH}\"\n")),
        Just("roles = [\"read\", \"open\"]\n".to_owned()),
        Just("expires = 2027-01-31T00:00:00Z\n".to_owned()),
        "[a-z]{1,8} = (\"[^\"\\\\\n]{0,9}\"|[0-9.:TZ-]{1,12}|\\[.{0,6}\\]|true)\n",
        "\\PC{0,12}\n?",
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn no_bytes_panic_and_a_line_is_in_the_text(bytes: Vec<u8>) {
        if let Err(invalid) = AdminTokens::parse(&bytes) {
            prop_assert!((1..=1 + line_of(&bytes, bytes.len())).contains(&invalid.line));
        }
    }

    #[test]
    fn what_is_accepted_has_unique_names_and_roles(text in texts()) {
        if let Ok(tokens) = AdminTokens::parse(text.as_bytes()) {
            let names: BTreeSet<_> = tokens.iter().map(|token| token.name.as_str()).collect();
            prop_assert_eq!(names.len(), tokens.iter().count());
            prop_assert!(!names.is_empty() && tokens.iter().all(|token| !token.roles.is_empty()));
        }
    }

    /// A file that is written in steps is either wrong or has fewer of the same tokens, never other ones.
    #[test]
    fn a_half_written_file_adds_nothing(at in 0..2000_usize) {
        static WHOLE: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
            let token = |name: String| {
                let roles = BTreeSet::from([AdminRole::Read, AdminRole::Open]);
                let expires = Some("2027-01-31T00:00:00Z".parse().unwrap());
                NewAdminToken::generate(&TokenName::new(name).unwrap(), &roles, expires).unwrap()
            };
            (0..10).map(|number| token(format!("t{number}")).entry().to_owned()).collect()
        });
        let whole = AdminTokens::parse(WHOLE.as_bytes()).unwrap();
        let part = WHOLE.as_bytes().get(..at).unwrap_or_default();
        if let Ok(tokens) = AdminTokens::parse(part) {
            for token in tokens.iter() {
                let same = whole.iter().find(|same| same.name == token.name).unwrap();
                // The last token may lack its time so far, which is one reason to wait until the file has settled.
                prop_assert_eq!((&token.roles, token.hash), (&same.roles, same.hash));
            }
        }
    }
}

#[test]
fn fuzz_admin_tokens() {
    rolltap_testing::fuzz!("admin_tokens", |bytes| match AdminTokens::parse(bytes) {
        Ok(tokens) => {
            let names: BTreeSet<_> = tokens.iter().map(|token| token.name.as_str()).collect();
            assert!(!names.is_empty() && names.len() == tokens.iter().count());
            assert!(tokens.iter().all(|token| !token.roles.is_empty()));
        }
        Err(invalid) => assert!((1..=1 + line_of(bytes, bytes.len())).contains(&invalid.line)),
    });
}
