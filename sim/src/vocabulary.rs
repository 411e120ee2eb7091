//! The simulator's vocabulary: every byte, frequent pieces of English and code, and the tokens of the chat template.
//!
//! Ids 0 to 255 are the bytes. [`PIECES`] follow, and then [`MARKS`]. No piece contains `<`, so a mark in a text is
//! always found, whatever precedes the mark.

/// Frequent pieces. A leading space belongs to the word, as in the vocabularies of real models.
#[rustfmt::skip]
pub(super) const PIECES: &[&str] = &[
    // words
    " the", " of", " and", " to", " a", " in", " is", " it", " you", " that", " he", " was", " for", " on",
    " are", " with", " as", " I", " his", " they", " be", " at", " one", " have", " this", " from", " or",
    " had", " by", " not", " but", " what", " some", " we", " can", " out", " other", " were", " all",
    " there", " when", " up", " use", " your", " how", " said", " an", " each", " she", " which", " do",
    " their", " time", " if", " will", " way", " about", " many", " then", " them", " write", " would",
    " like", " so", " these", " her", " long", " make", " thing", " see", " him", " two", " has", " look",
    " more", " day", " could", " go", " come", " did", " number", " sound", " no", " most", " people", " my",
    " over", " know", " water", " than", " call", " first", " who", " may", " down", " side", " been", " now",
    " find", " any", " new", " work", " part", " take", " get", " place", " made", " live", " where",
    " after", " back", " little", " only", " round", " man", " year", " came", " show", " every", " good",
    " me", " give", " our", " under", " name", " very", " through", " just", " form", " sentence", " great",
    " think", " say", " help", " low", " line", " differ", " turn", " cause", " much", " mean", " before",
    " move", " right", " boy", " old", " too", " same", " tell", " does", " set", " three", " want", " air",
    " well", " also", " play", " small", " end", " put", " home", " read", " hand", " large", " add", " even",
    " land", " here", " must", " big", " high", " such", " follow", " act", " why", " ask", " men", " change",
    " went", " light", " kind", " off", " need", " house", " picture", " try", " us", " again", " animal",
    " point", " mother", " world", " near", " build", " self", " earth", " father",
    // the words of agents at a terminal
    " file", " files", " command", " commands", " terminal", " output", " error", " test", " tests", " task",
    " run", " running", " shell", " directory", " script", " code", " function", " return", " print",
    " string", " list", " value", " should", " complete", " completed", " next", " step", " check", " create",
    " install", " state", " current", " following", " true", " false", " null", " analysis", " plan",
    " keystrokes", " duration", " answer", " tool", " response", " message", " result", " using", " contents",
    " echo", " cat", " cd", " ls", " python", " bash", " git", " sudo", " apt", "system", "user", "assistant",
    "tool", "name", "arguments", "content", "command", "commands", "keystrokes", "duration", "analysis",
    "plan", "task", "complete", "true", "false", "null", "function", "type", "parameters", "description",
    "string", "object", "properties", "required", "hello", "Hello", "world", "The", "This", "You", "It", "We",
    "In", "If",
    // pieces of words
    "ing", "ed", "er", "ly", "es", "tion", "ation", "ment", "ness", "able", "est", "ion", "ous", "ive", "al",
    "en", "th", "he", "in", "an", "re", "on", "at", "nd", "or", "it", "is", "ar", "te", "st", "se", "le",
    "ou", "ll", "un", "ex", "pre", "con", "com", "pro", "per", "for", "ver", "out", "ate", "ent", "ant",
    "ess", "ity", "age", "ure", "ight", "ound", " s", " c", " p", " d", " m", " b", " w", " f", " h", " l",
    " r", " n", " e", " g", " t", " st", " re", " un", " con", " de", " pro",
    // punctuation, layout, numbers
    "\n\n", ".\n", ",\n", ":\n", "  ", "    ", "        ", ", ", ". ", "...", "\": \"", "\": ", "\", \"",
    "\"}", "{\"", "}\n", "()", "():\n", " =", " ==", " +", " -", "--", "---", " --", "://", "/usr", "/bin",
    "/tmp", "/app", ".py", ".sh", ".txt", ".md", "00", "10", "20", "root@", "$ ", "# ", " \"", " '", "\\n",
    "\",\n", "[\"", "\"]", "],\n", " {", " [", "##", "**", "``", "```", "```\n",
];

/// The tokens of the chat template in the order of their ids, and whether each is a control token. A control token
/// never appears in the text of an answer. The others do, until a parser removes them.
pub(super) const MARKS: &[(&str, bool)] = &[
    ("<|endoftext|>", true),
    ("<|im_start|>", true),
    ("<|im_end|>", true),
    ("<think>", false),
    ("</think>", false),
    ("<tool_call>", false),
    ("</tool_call>", false),
];
