//! Templates in the style of well-known models, written with the few tokens that the fixture never splits.

/// Qwen3: an empty think block before the last answer. Reasoning is dropped after the next user message.
pub(super) const QWEN3: &str = r"
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
    {{- '<|im_start|>assistant\n' }}
    {%- if loop.index0 > ns.last and (loop.last or m.reasoning_content) %}
        {{- '<think>\n' + (m.reasoning_content or '').strip('\n') + '\n</think>\n\n' }}
    {%- endif %}
    {{- m.content.lstrip('\n') }}
    {%- for call in m.tool_calls or [] %}
        {{- '\n<tool_call>\n' }}{{- call.function | tojson }}{{- '\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- elif m.role == 'tool' %}
    {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
    {{- '\n<tool_response>\n' + m.content + '\n</tool_response>' }}
    {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
{%- else %}
    {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

/// Gemma: trims all content, requires alternating roles, and has no tools.
pub(super) const GEMMA: &str = r"
{%- for m in messages %}
{%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate.') }}{%- endif %}
{{- '<|im_start|>' + ('model' if m.role == 'assistant' else m.role) + '\n' + m.content | trim + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>model\n' }}{%- endif %}";

/// Llama 3.1: a date in the system turn, one call per turn, and no content with a call.
pub(super) const LLAMA3: &str = r#"
{{- '<|im_start|>system\nToday is ' + (date_string or 'a day') + '.\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content }}{%- set messages = messages[1:] %}{%- endif %}
{{- '<|im_end|>' }}
{%- for m in messages %}
{%- if m.tool_calls %}
    {%- if m.tool_calls | length != 1 %}{{ raise_exception('This model only supports single tool-calls at once!') }}{%- endif %}
    {{- '<|im_start|>assistant\n{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
    {{- m.tool_calls[0].function.arguments | tojson }}{{- '}<|im_end|>' }}
{%- elif m.role == 'tool' %}
    {{- '<|im_start|>ipython\n' }}{{- m.content | tojson }}{{- '<|im_end|>' }}
{%- else %}
    {{- '<|im_start|>' + m.role + '\n' + m.content | trim + '<|im_end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"#;

/// DeepSeek V3: the token that ends a turn closes several tool calls, but never a single one.
pub(super) const DEEPSEEK: &str = r"
{%- for m in messages %}
{%- if m.role == 'user' %}{{- '<|im_start|>User' + m.content }}
{%- elif m.role == 'tool' %}{{- '<tool_call>output' + m.content + '</tool_call>' }}
{%- elif m.tool_calls %}
    {{- '<|im_start|>Assistant' + m.content }}
    {%- for call in m.tool_calls %}
        {{- '<tool_call>' + call.function.name + '\n' }}{{- call.function.arguments | tojson }}{{- '\n</tool_call>' }}
        {%- if not loop.first and loop.last %}{{- '<|im_end|>' }}{%- endif %}
    {%- endfor %}
{%- else %}{{- '<|im_start|>Assistant' + m.content + '<|im_end|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt and messages[-1].role == 'user' %}{{- '<|im_start|>Assistant' }}{%- endif %}";

/// GLM 4: a turn ends only where the next one begins, and the policy stops at the first token of that turn.
pub(super) const GLM: &str = r"
{%- set marks = {'user': '<|im_start|>', 'assistant': '<think>', 'tool': '<tool_call>'} %}
{%- for m in messages %}{{- marks[m.role] + '\n' + m.content }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<think>\n' }}{%- endif %}";

/// A template with plain words between turns.
pub(super) const PLAIN: &str = r"
{%- for m in messages %}{{- m.role + ': ' + m.content + '\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- 'assistant: ' }}{%- endif %}";

/// A template that repeats the answers at the end.
pub(super) const TWICE: &str = r"
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}
{%- for m in messages if m.role == 'assistant' %}{{- '<think>' + m.content + '</think>' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

/// A template that omits every answer except the last message.
pub(super) const FORGETFUL: &str = r"
{%- for m in messages %}
{%- if m.role != 'assistant' or loop.last %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

/// Mistral: no generation prompt, tools before the last user turn. An answer with calls shows only the calls.
pub(super) const MISTRAL: &str = r#"
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'user' %}
    {%- if tools and loop.index0 == ns.last %}{{- '<tool_call>' }}{{- tools | tojson }}{{- '</tool_call>' }}{%- endif %}
    {{- '<|im_start|>' + m.content + '<think>' }}
{%- elif m.role == 'tool' %}{{- '<tool_call>{"content": ' + m.content + ', "call_id": "' + m.tool_call_id + '"}</tool_call>' }}
{%- elif m.tool_calls %}
    {{- '<tool_call>' }}{{- m.tool_calls | tojson }}{{- '<|im_end|>' }}
{%- else %}{{- ' ' + m.content + '<|im_end|>' }}
{%- endif %}
{%- endfor %}"#;
