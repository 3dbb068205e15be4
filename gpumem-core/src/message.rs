//! Text built in const evaluation, in which `format!` does not exist.

/// A text of at most `CAP` bytes, built piece by piece in const evaluation.
///
/// Text that does not fit is cut off at a character boundary; nothing overflows and nothing panics. The methods take
/// `&mut self`, since a buffer passed by value would be copied for each piece.
#[derive(Clone, Copy, Debug)]
pub struct Message<const CAP: usize> {
    buffer: [u8; CAP],
    length: usize,
    /// True once a piece was cut off. Later pieces are dropped then, too: a text with a gap would mislead.
    full: bool,
}

impl<const CAP: usize> Default for Message<CAP> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const CAP: usize> Message<CAP> {
    /// Returns the empty text.
    pub const fn new() -> Self {
        Message { buffer: [0; CAP], length: 0, full: false }
    }

    /// Appends `text`.
    pub const fn text(&mut self, text: &str) -> &mut Self {
        if self.full {
            return self;
        }
        let bytes = text.as_bytes();
        let mut count = bytes.len();
        if count > CAP - self.length {
            self.full = true;
            count = CAP - self.length;
            // A byte 10xxxxxx continues a character: cut before the character that it belongs to.
            while count > 0 && bytes[count] & 0xC0 == 0x80 {
                count -= 1;
            }
        }
        let (_, free) = self.buffer.split_at_mut(self.length);
        free.split_at_mut(count).0.copy_from_slice(bytes.split_at(count).0);
        self.length += count;
        self
    }

    /// Appends `value` in decimals.
    pub const fn number(&mut self, value: u64) -> &mut Self {
        let mut digits = [0u8; 20];
        let mut start = digits.len();
        let mut rest = value;
        loop {
            start -= 1;
            digits[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        match core::str::from_utf8(digits.split_at(start).1) {
            Ok(text) => self.text(text),
            Err(_) => self,
        }
    }

    /// Appends `bytes` in the largest binary unit that it reaches: `14.21 GiB`, `527.8 MiB`, `3.5 KiB`, `12 B`.
    pub const fn bytes(&mut self, bytes: u64) -> &mut Self {
        if bytes >= 1 << 30 {
            self.decimal(hundredths(bytes, 1 << 30), 2).text(" GiB")
        } else if bytes >= 1 << 20 {
            self.decimal(tenths(bytes, 1 << 20), 1).text(" MiB")
        } else if bytes >= 1 << 10 {
            self.decimal(tenths(bytes, 1 << 10), 1).text(" KiB")
        } else {
            self.number(bytes).text(" B")
        }
    }

    /// Appends a time in seconds or milliseconds: `1.2 s`, `0.8 s`, `35 ms`, `under 1 ms`.
    pub const fn time(&mut self, ms: u64) -> &mut Self {
        if ms >= 100 {
            self.decimal(tenths(ms, 1000), 1).text(" s")
        } else if ms > 0 {
            self.number(ms).text(" ms")
        } else {
            self.text("under 1 ms")
        }
    }

    /// Appends `scaled / 10^digits` with `digits` digits after the point.
    const fn decimal(&mut self, scaled: u64, digits: u32) -> &mut Self {
        let mut unit = 10u64.pow(digits);
        self.number(scaled / unit).text(".");
        while unit > 1 {
            unit /= 10;
            self.number(scaled / unit % 10);
        }
        self
    }

    /// Appends spaces until the current line is `column` characters long. Every character counts as one column.
    pub const fn pad_to(&mut self, column: usize) -> &mut Self {
        let mut width = 0;
        let mut at = self.length;
        while at > 0 && self.buffer[at - 1] != b'\n' {
            at -= 1;
            if self.buffer[at] & 0xC0 != 0x80 {
                width += 1;
            }
        }
        while width < column && !self.full {
            self.text(" ");
            width += 1;
        }
        self
    }

    /// Returns the text so far.
    pub const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.buffer.split_at(self.length).0) {
            Ok(text) => text,
            Err(_) => "",
        }
    }
}

/// Returns `bytes / unit` in hundredths, rounded to nearest. 128 bits, because `100 * bytes` may pass 2^64.
const fn hundredths(bytes: u64, unit: u64) -> u64 {
    ((bytes as u128 * 100 + unit as u128 / 2) / unit as u128) as u64
}

/// Returns `bytes / unit` in tenths, rounded to nearest.
const fn tenths(bytes: u64, unit: u64) -> u64 {
    ((bytes as u128 * 10 + unit as u128 / 2) / unit as u128) as u64
}

/// True if two texts are equal: `==` on `str` is no const fn.
pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::Message;
    use alloc::string::ToString;

    fn bytes(value: u64) -> alloc::string::String {
        Message::<64>::new().bytes(value).as_str().to_string()
    }

    #[test]
    fn bytes_take_the_largest_unit_reached() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes(553_430_000), "527.8 MiB");
        assert_eq!(bytes((1421 << 30) / 100), "14.21 GiB");
        assert_eq!(bytes(u64::MAX), "17179869184.00 GiB");
    }

    #[test]
    fn times_are_seconds_or_milliseconds() {
        for (ms, text) in
            [(0, "under 1 ms"), (1, "1 ms"), (99, "99 ms"), (100, "0.1 s"), (747, "0.7 s"), (61_250, "61.3 s")]
        {
            assert_eq!(Message::<64>::new().time(ms).as_str(), text);
        }
    }

    #[test]
    fn numbers_reach_both_ends() {
        let mut message = Message::<64>::new();
        message.number(0).text(" ").number(u64::MAX);
        assert_eq!(message.as_str(), "0 18446744073709551615");
    }

    #[test]
    fn padding_counts_from_the_last_newline() {
        let mut message = Message::<64>::new();
        message.text("title\n  µ").pad_to(6).text("x").pad_to(3).text("y");
        assert_eq!(message.as_str(), "title\n  µ   xy");
    }

    #[test]
    fn what_does_not_fit_is_cut_at_a_character() {
        let mut message = Message::<5>::new();
        message.text("abcdéf").text("g").number(7).pad_to(90);
        assert_eq!(message.as_str(), "abcd");
        let mut message = Message::<0>::new();
        message.text("é").bytes(1 << 40);
        assert_eq!(message.as_str(), "");
    }

    #[test]
    fn works_in_const_evaluation() {
        const TEXT: Message<32> = {
            let mut message = Message::new();
            message.text("needs ").bytes(3 << 29);
            message
        };
        assert_eq!(TEXT.as_str(), "needs 1.50 GiB");
    }
}
