//! Changes known inputs at random.

use crate::numbers::Numbers;
use crate::{forget_places, tokens_of};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

/// The most changes to an input.
const MOST: usize = 5;

/// Texts that may be inserted among tokens: of Rust, of this language, and of habits that people bring from other languages.
const PIECES: [&str; 68] = [
    "0",
    "1",
    "65536",
    "4294967295",
    "18446744073709551615",
    "99999999999999999999999999999999999999999",
    "1e400",
    "-1",
    "2.5",
    "\"\"",
    "\"größe\"",
    "'a'",
    "b\"x\"",
    "c\"x\"",
    "[]",
    "()",
    "{}",
    "[,]",
    "(1, 2, 3)",
    "größe",
    "r#type",
    "self",
    "Self",
    "forward",
    "true",
    "null",
    "repeat(9999999, [Relu])",
    "repeat(65536, Linear(4))",
    "repeat(3, repeat(3, []))",
    "from(x)",
    "Tied(w)",
    "::",
    ";",
    ",",
    "=",
    "<",
    ">",
    "#",
    "!",
    "@",
    "$",
    ":",
    "'life",
    "_",
    "..",
    "fn",
    "struct",
    "if",
    "else",
    "let",
    "crate",
    "use blocks resnet;",
    "nn.ReLU()",
    "x.relu().conv2d(8, 3)",
    "for i in 0..3 { [Relu] }",
    "[Relu; 3]",
    "return",
    "|i| { [Relu] }",
    "->",
    "while true { Relu }",
    "crate = gm;",
    "impl Net { }",
    "tap(x)",
    "freeze",
    "#[cfg(test)]",
    "/// text\n",
    "lora(8, 16.0, [Linear(4)], targets = \"q\")",
    "checkpoint",
];

fn count(tokens: &TokenStream) -> usize {
    let inside = |token: TokenTree| match token {
        TokenTree::Group(group) => 1 + count(&group.stream()),
        _ => 1,
    };
    tokens.clone().into_iter().map(inside).sum()
}

/// Returns the token with index `at`, counted depth first.
fn nth(tokens: &TokenStream, at: &mut usize) -> Option<TokenTree> {
    for token in tokens.clone() {
        if *at == 0 {
            return Some(token);
        }
        *at -= 1;
        if let TokenTree::Group(group) = &token
            && let Some(found) = nth(&group.stream(), at)
        {
            return Some(found);
        }
    }
    None
}

/// Changes the token with index `at`, counted depth first. `piece` may replace it.
fn changed(tokens: TokenStream, at: &mut usize, piece: &TokenStream, numbers: &mut Numbers) -> TokenStream {
    let mut all: Vec<TokenTree> = Vec::new();
    for token in tokens {
        *at = at.wrapping_sub(1);
        if *at != usize::MAX {
            all.push(match token {
                TokenTree::Group(group) => {
                    Group::new(group.delimiter(), changed(group.stream(), at, piece, numbers)).into()
                }
                token => token,
            });
            continue;
        }
        let piece = piece.clone();
        match (numbers.below(9), token) {
            (0, _) => {}
            (1, token) => all.extend([token.clone(), token]),
            (2, token) => {
                let before = all.pop();
                all.push(token);
                all.extend(before);
            }
            (3, _) => all.extend(piece),
            (4, token) => all.extend(piece.into_iter().chain([token])),
            (5, token) => all.push(Group::new(Delimiter::None, token.into()).into()),
            (6, token) => {
                let inside = match token {
                    TokenTree::Group(group) => group.stream(),
                    token => token.into(),
                };
                let delimiter = *numbers.one(&[Delimiter::Brace, Delimiter::Bracket, Delimiter::Parenthesis]);
                all.push(Group::new(delimiter, inside).into());
            }
            // Removes the brackets, or replaces their contents.
            (7, TokenTree::Group(group)) => all.extend(group.stream()),
            (_, TokenTree::Group(group)) => {
                let inside = if numbers.below(2) == 0 { TokenStream::new() } else { piece };
                all.push(Group::new(group.delimiter(), inside).into());
            }
            (_, token) => all.extend([token].into_iter().chain(piece)),
        }
    }
    all.into_iter().collect()
}

/// Returns a text of `seeds` with some of its tokens changed.
pub fn tokens(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let Some(mut tokens) = tokens_of(numbers.one::<Vec<u8>>(seeds)) else { return Vec::new() };
    for _ in 0..=numbers.below(MOST) {
        let piece = match numbers.below(3) {
            // Takes a part of another text.
            0 => tokens_of(numbers.one::<Vec<u8>>(seeds))
                .and_then(|other| nth(&other, &mut numbers.below(count(&other)))),
            _ => None,
        };
        let piece = piece.map_or_else(|| numbers.one(&PIECES).parse().unwrap_or_default(), TokenStream::from);
        let mut at = numbers.below(count(&tokens));
        tokens = changed(tokens, &mut at, &piece, numbers);
    }
    let text = tokens.to_string().into_bytes();
    forget_places();
    text
}

/// Numbers near limits with which counts and sizes are compared.
const EDGES: [u64; 12] =
    [0, 1, 127, 128, 255, 256, 65_535, 1 << 31, u32::MAX as u64, 1 << 32, i64::MAX as u64, u64::MAX];

/// Applies one random change to bytes.
fn change(bytes: &mut Vec<u8>, numbers: &mut Numbers, other: &[u8]) {
    let at = numbers.below(bytes.len());
    let length = 1 + numbers.below(8).min(numbers.below(64));
    let end = (at + length).min(bytes.len());
    match numbers.below(9) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << numbers.below(8),
        1 if !bytes.is_empty() => bytes[at] = *numbers.one(&[0, 1, 2, 0x7F, 0x80, 0xFF, 0xFE, b'-', b'0', b',']),
        2 if !bytes.is_empty() => bytes[at] = bytes[at].wrapping_add(*numbers.one(&[1, 255])),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let copied = bytes[at..end].to_vec();
            let to = numbers.below(bytes.len() + 1);
            bytes.splice(to..to, copied);
        }
        5 => bytes.truncate(at),
        6 => {
            let number = numbers.one(&EDGES).to_le_bytes();
            let number = &number[..*numbers.one(&[1, 2, 4, 8])];
            let end = (at + number.len()).min(bytes.len());
            bytes.splice(at..end, number.iter().copied());
        }
        7 => {
            let from = numbers.below(other.len());
            let to = (from + 1 + numbers.below(64)).min(other.len());
            bytes.splice(at..end, other[from..to].iter().copied());
        }
        _ => bytes.splice(at..at, (0..length).map(|_| numbers.below(256) as u8)).for_each(drop),
    }
}

/// Returns one of `seeds`, with some bytes changed.
pub fn bytes(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = numbers.one(seeds).clone();
    for _ in 0..=numbers.below(MOST) {
        let other = numbers.one(seeds).clone();
        change(&mut bytes, numbers, &other);
    }
    bytes
}

/// Replaces a number that is written as text in the bytes.
fn renumber(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let from = numbers.below(bytes.len());
    let Some(first) = bytes[from..].iter().position(u8::is_ascii_digit).map(|place| from + place) else { return };
    let length = bytes[first..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = match numbers.below(4) {
        0 => numbers.below(20) as u64,
        1 => 1 << numbers.below(64),
        _ => *numbers.one(&EDGES),
    };
    let sign = if numbers.below(10) == 0 { "-" } else { "" };
    bytes.splice(first..first + length, format!("{sign}{number}").into_bytes()).for_each(drop);
}

/// Returns a file of `seeds`, with some bytes and some numbers in its text changed.
pub fn file(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut file = numbers.one::<Vec<u8>>(seeds).clone();
    for _ in 0..=numbers.below(MOST) {
        if numbers.below(3) == 0 {
            renumber(&mut file, numbers);
        } else {
            let other = numbers.one::<Vec<u8>>(seeds).clone();
            change(&mut file, numbers, &other);
        }
    }
    file
}

/// Returns a record of `seeds`, with a change in its text, its blueprint, or the bytes of the file that contains it.
pub fn record(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let seed = numbers.one(seeds);
    let end = seed.iter().position(|&byte| byte == 0).unwrap_or(seed.len());
    let (text, blueprint) = (seed[1..end].to_vec(), seed[end + 1..].to_vec());
    let which = 2 * numbers.below(fuzz_command::REPORTS) as u8;
    match numbers.below(4) {
        0 => {
            let mut file = fuzz_command::object(&crate::section(&text, &blueprint));
            (0..=numbers.below(MOST)).for_each(|_| change(&mut file, numbers, &text));
            [&[which], &file[..]].concat()
        }
        1 => {
            let mut blueprint = blueprint;
            let other = numbers.one(seeds).clone();
            (0..=numbers.below(MOST)).for_each(|_| change(&mut blueprint, numbers, &other));
            [&[which + 1], &text[..], &[0], &blueprint].concat()
        }
        // JSON is made of tokens.
        _ => [&[which + 1], &tokens(numbers, &[text])[..], &[0], &blueprint].concat(),
    }
}

/// Parts of lists of cards and sizes.
const WORDS: [&str; 24] = [
    ",",
    ",,",
    " ",
    "\n",
    "\t",
    "t4",
    "rtx3060",
    "rtx 3060 12 gb",
    "H100_SXM",
    "GiB",
    "MiB",
    "GB",
    "b",
    "0",
    "0.5GiB",
    "11.5",
    "16777216TiB",
    "99999999999999999999GiB",
    "-1GiB",
    "1e9GiB",
    "+8GiB",
    "८GiB",
    "\u{2009}",
    ".GiB",
];

/// Returns a text of `seeds` with some words and letters changed.
pub fn text(numbers: &mut Numbers, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut text: Vec<char> = String::from_utf8_lossy(numbers.one::<Vec<u8>>(seeds)).chars().collect();
    for _ in 0..=numbers.below(2 * MOST) {
        let at = numbers.below(text.len() + 1);
        let end = (at + numbers.below(6)).min(text.len());
        let new: Vec<char> = match numbers.below(4) {
            0 => Vec::new(),
            1 => numbers.one(&WORDS).chars().collect(),
            2 => char::from_u32(numbers.below(0x250) as u32).into_iter().collect(),
            _ => text[at..end].repeat(1 + numbers.below(40)),
        };
        text.splice(at..end, new);
    }
    text.into_iter().collect::<String>().into_bytes()
}
