//! Pages that a gateway between the proxy and its upstream sends in place of vLLM's answer.

use http::{StatusCode, header, response};

/// What to change if a gateway answers 504.
pub const GATEWAY_TIMEOUT_REMEDY: &str =
    "raise the time-outs of the gateway above the longest call: proxy_read_timeout in nginx";
/// What to change if a gateway answers 413.
pub const GATEWAY_TOO_LARGE_REMEDY: &str =
    "raise the limit of request bodies in the gateway: client_max_body_size 0 in nginx";
/// The longest title in an error, in characters.
const LONGEST_TITLE: usize = 100;

/// Returns the error of a call that is answered with a page of HTML, which vLLM never sends. `None` for other answers.
pub(super) fn error(head: &response::Parts, body: &str) -> Option<String> {
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    if !text(header::CONTENT_TYPE)?.trim_start().to_ascii_lowercase().starts_with("text/html") {
        return None;
    }
    let server = text(header::SERVER).map(|server| format!(" ({server})")).unwrap_or_default();
    let title = title(body).map(|title| format!(" {title:?}")).unwrap_or_default();
    let advice = match head.status {
        StatusCode::GATEWAY_TIMEOUT => GATEWAY_TIMEOUT_REMEDY,
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => {
            "check that it reaches the server, and its log"
        }
        StatusCode::PAYLOAD_TOO_LARGE => GATEWAY_TOO_LARGE_REMEDY,
        _ => "check that the address of the upstream is that of vLLM, and needs no login",
    };
    Some(format!(
        "a gateway{server} in front of the upstream answered {} with the page{title} instead of vLLM: {advice}",
        head.status
    ))
}

/// Returns the title of a page.
fn title(page: &str) -> Option<String> {
    let lower = page.to_ascii_lowercase();
    let begin = lower.find("<title>")? + "<title>".len();
    let end = begin + lower.get(begin..)?.find("</title>")?;
    Some(page.get(begin..end)?.trim().chars().take(LONGEST_TITLE).collect())
}

#[cfg(test)]
mod tests {
    use http::Response;
    use proptest::prelude::*;

    use super::*;

    fn error_of(status: u16, kind: &str, body: &str) -> Option<String> {
        let answer =
            Response::builder().status(status).header("content-type", kind).header("server", "nginx/1.22.1");
        error(&answer.body(()).unwrap().into_parts().0, body)
    }

    #[test]
    fn a_page_is_named_with_its_title_and_a_remedy() {
        let page = "<html><head><TITLE> 504 Gateway Time-out </TITLE></head></html>";
        let error = error_of(504, "text/html", page).unwrap();
        for part in ["nginx/1.22.1", "504 Gateway Timeout", "\"504 Gateway Time-out\"", "proxy_read_timeout"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        assert!(error_of(200, "Text/HTML; charset=utf-8", "<p>").unwrap().contains("needs no login"));
        assert_eq!(error_of(200, "application/json", "{}"), None);
        assert_eq!(error_of(504, "text/plain", "stream timeout"), None);
    }

    proptest! {
        #[test]
        fn arbitrary_pages_never_panic(page in "(<title>|</title>|<TITLE>|İ|.)*") {
            error_of(200, "text/html", &page).unwrap();
        }
    }
}
