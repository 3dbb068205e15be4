//! Reads buffers from comma-separated values, and writes them with their offsets.
//!
//! | columns | from |
//! | --- | --- |
//! | `id,lower,upper,size` | MiniMalloc and idealloc; `upper` is the first time at which the buffer is not needed any more |
//! | `first,last,bytes`, among others | `cargo gpumem timeline --format csv`; `last` is the last operation that needs the tensor |
//!
//! Tensors of a timeline that are in host memory are no buffers of the arena.

use crate::Failure;
use crate::timeline::category::Category;
use csv::StringRecord;
use gpumem_core::memory::plan::LiveRange;
use std::path::Path;

/// The most buffers in a file.
const MOST: usize = 20_000;

/// The column that is written, or replaced.
const OFFSET: &str = "offset";

/// The buffers of a file.
#[derive(Debug)]
pub struct Buffers {
    /// The buffers in the order of the file. Times are numbered in their order, so that any unit of the file will do.
    pub ranges: Vec<LiveRange>,
    heading: StringRecord,
    rows: Vec<StringRecord>,
}

/// The places of the columns.
struct Columns {
    first: usize,
    end: usize,
    /// True if the buffer is still needed at its end.
    includes_end: bool,
    size: usize,
    category: Option<usize>,
}

impl Columns {
    fn find(heading: &StringRecord) -> Result<Columns, String> {
        let column = |name: &str| heading.iter().position(|other| other.trim().eq_ignore_ascii_case(name));
        let found = |[first, end, size]: [&str; 3], includes_end| {
            let category = column("category").filter(|_| includes_end);
            Some(Columns { first: column(first)?, end: column(end)?, includes_end, size: column(size)?, category })
        };
        let found = found(["lower", "upper", "size"], false).or_else(|| found(["first", "last", "bytes"], true));
        found.ok_or_else(|| "its first line must name the columns `lower`, `upper` and `size`, as MiniMalloc's files do, or `first`, `last` and `bytes`, as `cargo gpumem timeline --format csv` does".into())
    }

    /// True if the row is a tensor in host memory.
    fn is_on_host(&self, row: &StringRecord) -> bool {
        let slug = self.category.and_then(|column| row.get(column));
        slug.is_some_and(|slug| Category::ALL.iter().any(|category| category.is_on_host() && category.slug() == slug))
    }

    /// Returns the first time of a row's buffer, that after its last, and its size rounded up to `alignment`.
    fn read(&self, row: &StringRecord, alignment: u64) -> Result<[u64; 3], String> {
        let number = |column: usize| {
            let text = row.get(column).unwrap_or_default().trim();
            text.parse::<u64>().map_err(|_| format!("`{text}` is no whole number below 2^64"))
        };
        let [first, end, size] = [number(self.first)?, number(self.end)?, number(self.size)?];
        let end = if self.includes_end { end.checked_add(1).ok_or("the last time is 2^64 - 1")? } else { end };
        if end <= first {
            return Err(format!("the buffer ends at {}, and begins at {first}", number(self.end)?));
        }
        let size = size.checked_next_multiple_of(alignment).ok_or("the size is 2^64 bytes or more with its padding")?;
        Ok([first, end, size])
    }
}

impl Buffers {
    /// Reads the buffers of a file. Their sizes are rounded up to multiples of `alignment`, which must not be 0.
    pub fn read(path: &Path, alignment: u64) -> Result<Buffers, Failure> {
        let text = std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Buffers::parse(&text, alignment).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    pub(super) fn parse(text: &[u8], alignment: u64) -> Result<Buffers, String> {
        let mut reader = csv::Reader::from_reader(text);
        let heading = reader.headers().map_err(|error| error.to_string())?.clone();
        let columns = Columns::find(&heading)?;
        let (mut rows, mut lives) = (Vec::new(), Vec::new());
        for row in reader.into_records() {
            let row = row.map_err(|error| error.to_string())?;
            if columns.is_on_host(&row) {
                continue;
            }
            let line = row.position().map_or(0, csv::Position::line);
            if rows.len() == MOST {
                return Err(format!("it has more than {MOST} buffers"));
            }
            lives.push(columns.read(&row, alignment).map_err(|error| format!("line {line}: {error}"))?);
            rows.push(row);
        }
        let mut times: Vec<u64> = lives.iter().flat_map(|&[first, end, _]| [first, end]).collect();
        times.sort_unstable();
        times.dedup();
        // There are fewer times than 2^32.
        let number = |time: u64| times.partition_point(|&other| other < time) as u32;
        let range = |&[first, end, bytes]: &[u64; 3]| LiveRange { bytes, first: number(first), last: number(end) - 1 };
        let ranges = lives.iter().map(range).collect();
        Ok(Buffers { ranges, heading, rows })
    }

    /// Returns the file with the offset of each buffer as the last column.
    pub fn placed(&self, offsets: &[u64]) -> Result<Vec<u8>, Failure> {
        let without = self.heading.iter().map(|name| name.trim().eq_ignore_ascii_case(OFFSET));
        let without: Vec<bool> = without.collect();
        let kept = |row: &StringRecord| -> StringRecord {
            row.iter().zip(&without).filter(|(_, left_out)| !**left_out).map(|(field, _)| field).collect()
        };
        let mut writer = csv::Writer::from_writer(Vec::new());
        let mut write = |row: &StringRecord, last: &str| {
            let mut row = kept(row);
            row.push_field(last);
            writer.write_record(&row)
        };
        write(&self.heading, OFFSET)?;
        for (row, offset) in self.rows.iter().zip(offsets) {
            write(row, &offset.to_string())?;
        }
        Ok(writer.into_inner().map_err(|error| error.into_error())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, alignment: u64) -> Result<Buffers, String> {
        Buffers::parse(text.as_bytes(), alignment)
    }

    #[test]
    fn times_of_both_kinds_are_numbered_in_their_order() {
        let expected = [
            LiveRange { bytes: 512, first: 0, last: 0 },
            LiveRange { bytes: 256, first: 1, last: 1 },
            LiveRange { bytes: 0, first: 0, last: 1 },
        ];
        let lower =
            "id,lower,upper,size\na,5,1000000000000,300\nb,1000000000000,1000000000001,256\nc,5,1000000000001,0\n";
        assert_eq!(parsed(lower, 256).unwrap().ranges, expected);
        let last = "name, Bytes,first,last\na,300,5,7\nb,256,8,8\nc,0,5,8\n";
        assert_eq!(parsed(last, 256).unwrap().ranges, expected);
        assert_eq!(parsed("lower,upper,size\n", 1).unwrap().ranges, []);
        let host = Category::ParkedState.slug();
        let with_host = format!("category,bytes,first,last\nsaved,300,5,7\n{host},1000,0,9\n");
        assert_eq!(parsed(&with_host, 1).unwrap().ranges, [LiveRange { bytes: 300, first: 0, last: 0 }]);
    }

    #[test]
    fn offsets_are_the_last_column() {
        let buffers = parsed("id,offset,lower,upper,size\n\"a,b\",7,0,1,3\nc,8,0,2,4\n", 1).unwrap();
        let placed = String::from_utf8(buffers.placed(&[4, 0]).unwrap()).unwrap();
        assert_eq!(placed, "id,lower,upper,size,offset\n\"a,b\",0,1,3,4\nc,0,2,4,0\n");
    }

    #[test]
    fn what_is_wrong_has_its_line() {
        let error = |text: &str| parsed(text, 256).unwrap_err();
        assert!(
            error("a,b,c\n1,2,3\n").starts_with("its first line must name the columns `lower`, `upper` and `size`")
        );
        assert!(error("").starts_with("its first line must name the columns"));
        let heading = "lower,upper,size\n0,1,2\n";
        assert_eq!(error(&format!("{heading}0,-1,2\n")), "line 3: `-1` is no whole number below 2^64");
        assert_eq!(error(&format!("{heading}0,1,\n")), "line 3: `` is no whole number below 2^64");
        assert_eq!(error(&format!("{heading}4,4,2\n")), "line 3: the buffer ends at 4, and begins at 4");
        let largest = u64::MAX;
        let text = format!("{heading}0,1,{largest}\n");
        assert_eq!(error(&text), "line 3: the size is 2^64 bytes or more with its padding");
        let text = format!("first,last,bytes\n0,{largest},1\n");
        assert_eq!(error(&text), "line 2: the last time is 2^64 - 1");
        assert!(error(&format!("{heading}1,2\n")).contains("found record with 2 fields"));
        let many = "0,1,1\n".repeat(MOST + 1);
        assert_eq!(error(&format!("lower,upper,size\n{many}")), "it has more than 20000 buffers");
    }
}
