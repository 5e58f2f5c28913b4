//! Names that weights can have here and in PyTorch.

/// Longest name.
const LONGEST: usize = 100;

/// Words that PyTorch's modules and Python use themselves.
const RESERVED: &[&str] = &[
    "add_module",
    "and",
    "apply",
    "as",
    "assert",
    "async",
    "await",
    "bfloat16",
    "break",
    "buffers",
    "call_super_init",
    "children",
    "class",
    "clear",
    "compile",
    "continue",
    "cpu",
    "cuda",
    "def",
    "del",
    "double",
    "dump_patches",
    "elif",
    "else",
    "eval",
    "except",
    "extra_repr",
    "finally",
    "float",
    "for",
    "forward",
    "from",
    "get_buffer",
    "get_extra_state",
    "get_parameter",
    "get_submodule",
    "global",
    "half",
    "if",
    "import",
    "in",
    "ipu",
    "is",
    "items",
    "keys",
    "lambda",
    "load_state_dict",
    "modules",
    "mtia",
    "named_buffers",
    "named_children",
    "named_modules",
    "named_parameters",
    "None",
    "nonlocal",
    "not",
    "or",
    "parameters",
    "pass",
    "pop",
    "raise",
    "register_backward_hook",
    "register_buffer",
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_load_state_dict_post_hook",
    "register_load_state_dict_pre_hook",
    "register_module",
    "register_parameter",
    "register_state_dict_post_hook",
    "register_state_dict_pre_hook",
    "requires_grad_",
    "return",
    "set_extra_state",
    "set_submodule",
    "share_memory",
    "state_dict",
    "to",
    "to_empty",
    "train",
    "training",
    "True",
    "False",
    "try",
    "type",
    "update",
    "values",
    "while",
    "with",
    "xpu",
    "yield",
    "zero_grad",
    "T_destination",
];

/// Rejects a name that a layer cannot have.
///
/// # Errors
/// When it is not letters, digits and dots, or PyTorch could not use it.
pub fn check(name: &str) -> Result<(), String> {
    let part = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let sound = name.len() <= LONGEST
        && name.split('.').all(part)
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.split('.').all(|part| !part.starts_with('_'));
    if !sound {
        return Err(format!(
            "expected up to {LONGEST} letters, digits and _, starting with a letter; dots may join several such words, \
             as in features.0"
        ));
    }
    match name.split('.').find(|part| RESERVED.contains(part)) {
        Some(word) => Err(format!("{word:?} is a word that PyTorch or Python uses itself")),
        None => Ok(()),
    }
}
