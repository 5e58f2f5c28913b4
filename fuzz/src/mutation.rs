//! Random changes that files suffer, and those that lead a reader astray: wrong lengths, huge numbers, deep nesting.

/// A source of changed files. The same seed gives the same files on every machine.
#[derive(Clone, Debug)]
pub struct Mutator {
    state: u64,
}

/// The longest file made from a small one.
const LONGEST: usize = 1 << 17;

/// Numbers at the limits of their types.
const NUMBERS: [u64; 16] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    1 << 40,
    i64::MAX as u64,
    u64::MAX - 7,
    u64::MAX,
];

/// Texts that mean something to some reader.
const WORDS: [&str; 24] = [
    "-1",
    "1e999",
    "-1e-999",
    "NaN",
    "99999999999999999999",
    "9007199254740993",
    "0.1",
    "null",
    "true",
    "\"\"",
    "\"\\ud800\"",
    "{}",
    "[]",
    ",",
    ";",
    "\t",
    "\n",
    "\r\n",
    "\"",
    "\u{feff}",
    "\u{0}",
    "../x",
    "\u{e9}\u{301}",
    "=",
];

impl Mutator {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A file made from one of these by some changes.
    pub fn change(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].clone();
        for _ in 0..=self.below(4) {
            self.change_once(&mut bytes, seeds);
        }
        bytes.truncate(LONGEST);
        bytes
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
        let (at, end) = self.range(bytes.len());
        match self.below(12) {
            0 => self.at_one(bytes, |own, byte| byte ^ 1 << own.below(8)),
            1 => self.at_one(bytes, |own, _| own.next() as u8),
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let number = self.number(bytes.len()).to_le_bytes();
                self.overwrite(bytes, at, number);
            }
            5 => {
                let mut number = self.number(bytes.len()).to_le_bytes();
                number.reverse();
                self.overwrite(bytes, at, number);
            }
            6 => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..at, word.bytes());
            }
            7 => self.replace_number(bytes),
            8 => {
                let other = &seeds[self.below(seeds.len())];
                let (from, to) = self.range(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            9 => {
                let part = bytes[at..end].to_vec();
                let times = (1 << self.below(14)).min(LONGEST / part.len().max(1));
                bytes.splice(at..at, part.repeat(times));
            }
            10 => {
                let open = [&b"["[..], b"{\"a\":", b"(", b"[[", b"a."][self.below(5)];
                bytes.splice(at..at, open.repeat(1 << self.below(12)));
            }
            _ => {
                let byte = self.next() as u8;
                bytes[at..end].fill(byte);
            }
        }
    }

    fn at_one(&mut self, bytes: &mut [u8], change: impl FnOnce(&mut Self, u8) -> u8) {
        if !bytes.is_empty() {
            let at = self.below(bytes.len());
            bytes[at] = change(self, bytes[at]);
        }
    }

    /// Writes some of the bytes of a number over others.
    fn overwrite(&mut self, bytes: &mut [u8], at: usize, number: [u8; 8]) {
        let width = 1 << self.below(4);
        let own = if self.below(2) == 0 { &number[..width] } else { &number[8 - width..] };
        bytes[at..].iter_mut().zip(own).for_each(|(byte, own)| *byte = *own);
    }

    /// Replaces a number that is written in digits.
    fn replace_number(&mut self, bytes: &mut Vec<u8>) {
        let starts: Vec<usize> = (0..bytes.len())
            .filter(|&i| bytes[i].is_ascii_digit() && (i == 0 || !bytes[i - 1].is_ascii_digit()))
            .collect();
        if starts.is_empty() {
            return;
        }
        let at = starts[self.below(starts.len())];
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let text = match self.below(3) {
            0 => WORDS[self.below(7)].to_string(),
            _ => self.number(bytes.len()).to_string(),
        };
        bytes.splice(at..at + digits, text.bytes());
    }

    /// A number at a limit, or close to the length of the file.
    fn number(&mut self, length: usize) -> u64 {
        match self.below(4) {
            0 => (length as u64).wrapping_add(self.below(5) as u64).wrapping_sub(2),
            1 => self.next() >> self.below(64),
            _ => NUMBERS[self.below(NUMBERS.len())],
        }
    }

    /// A part of so many items, often a short one.
    fn range(&mut self, length: usize) -> (usize, usize) {
        let start = self.below(length + 1);
        let most = if self.below(2) == 0 { 16 } else { length };
        (start, start + self.below((length - start).min(most) + 1))
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
