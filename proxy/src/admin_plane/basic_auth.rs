//! HTTP Basic authentication (RFC 7617), by which a browser sends a token as a password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue, header};

/// The header that makes a browser ask for a password.
pub(super) const CHALLENGE: [(HeaderName, HeaderValue); 1] =
    [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"rolltap\", charset=\"UTF-8\""))];

/// Returns the password of Basic authentication. The user name may be anything without a colon. `None` for
/// another kind of authorization, or a malformed one.
pub(super) fn password(authorization: &str) -> Option<String> {
    let (scheme, encoded) = authorization.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_password_is_what_follows_the_name_of_the_user() {
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        assert_eq!(password(&basic("anyone:a:b")).as_deref(), Some("a:b"));
        assert_eq!(password(&basic(":t").replace("Basic", "bAsIc")).as_deref(), Some("t"));
        for wrong in ["Basic", "Basic ?", "Bearer dDp0", &basic("no colon")] {
            assert_eq!(password(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_header_is_a_password_or_none(header: String, text: String, token: String) {
            password(&header);
            password(&format!("Basic {text}"));
            let sent = format!("Basic {}", STANDARD.encode(format!("u:{token}")));
            prop_assert_eq!(password(&sent), Some(token));
        }
    }
}
