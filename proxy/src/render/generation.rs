//! Replaces `{% generation %}…{% endgeneration %}`, with which transformers marks the text that the assistant
//! generated. The tags do not change the text. minijinja accepts no custom tags, so they become blocks of equal scope.

/// Returns the template with `{% with %}` blocks in place of generation blocks. In both, assignments inside the block
/// end with the block.
pub(super) fn without_generation_tags(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, from_tag)) = rest.split_once("{%") {
        result.push_str(before);
        result.push_str("{%");
        rest = from_tag;
        if let Some((tag, after)) = from_tag.split_once("%}")
            && let Some(replaced) = replacement(tag)
        {
            result.push_str(&replaced);
            result.push_str("%}");
            rest = after;
        }
    }
    result.push_str(rest);
    result
}

/// Returns the replacement for the inside of a tag, including its marks for white space.
fn replacement(tag: &str) -> Option<String> {
    let is_mark = |char: char| matches!(char, '-' | '+');
    let word = tag.trim_start_matches(is_mark).trim_end_matches(is_mark);
    match word.trim() {
        "generation" => Some(tag.replace("generation", "with")),
        "endgeneration" => Some(tag.replace("endgeneration", "endwith")),
        _ => None,
    }
}
