//! Tables with coloured columns that fit a width.

use std::fmt;

use anstyle::Style;
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table as Grid, presets};

use crate::common::style::{PLAIN, painted};

/// A column of a table.
#[derive(Clone, Copy)]
pub(in crate::job) struct Column {
    header: &'static str,
    is_right: bool,
    style: fn(&str) -> Style,
}

impl Column {
    pub(in crate::job) fn text(header: &'static str) -> Self {
        Self { header, is_right: false, style: |_| PLAIN }
    }

    pub(in crate::job) fn number(header: &'static str) -> Self {
        Self { is_right: true, ..Self::text(header) }
    }

    /// Chooses the style of each cell by its text.
    pub(in crate::job) fn styled(self, style: fn(&str) -> Style) -> Self {
        Self { style, ..self }
    }
}

/// A table that displays itself with escape sequences.
pub(in crate::job) struct Table {
    columns: Vec<Column>,
    grid: Grid,
}

impl Table {
    /// Makes an empty table. Its lines are at most `width` characters long if there is one; long cells are wrapped.
    pub(in crate::job) fn new(columns: Vec<Column>, width: Option<usize>) -> Self {
        let mut grid = Grid::new();
        grid.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Disabled);
        if let Some(width) = width {
            let width = u16::try_from(width).unwrap_or(u16::MAX);
            grid.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        }
        grid.set_header(columns.iter().map(|column| column.header));
        for (index, column) in columns.iter().enumerate() {
            if let Some(cells) = grid.column_mut(index).filter(|_| column.is_right) {
                cells.set_cell_alignment(CellAlignment::Right);
                // Numbers are short. Without the limit, a long text takes their space, and their headers are wrapped.
                cells.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        Self { columns, grid }
    }

    /// Adds a row. Control characters of its cells become spaces.
    pub(in crate::job) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.grid.add_row(cells.into_iter().map(|cell| cell.replace(char::is_control, " ")));
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.grid.to_string();
        let mut is_header = true;
        for (number, line) in text.lines().enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            is_header &= !line.starts_with('╞');
            if is_header || !line.starts_with('│') {
                f.write_str(line)?;
            } else {
                self.write_row(f, line)?;
            }
        }
        Ok(())
    }
}

impl Table {
    /// Colours the cells of a line. The library measures escape sequences as text, so they are added afterwards.
    fn write_row(&self, f: &mut fmt::Formatter<'_>, line: &str) -> fmt::Result {
        let mut columns = self.columns.iter();
        for piece in line.split_inclusive(['│', '┆']) {
            let end = piece.char_indices().next_back().map_or(0, |(at, _)| at);
            let (cell, border) = piece.split_at(end);
            // The first piece is the left border.
            let column = if cell.is_empty() { None } else { columns.next() };
            let style = column.map_or(PLAIN, |column| (column.style)(cell.trim()));
            if style == PLAIN {
                f.write_str(cell)?;
            } else {
                f.write_str(&painted(style, cell))?;
            }
            f.write_str(border)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;
    use crate::common::style::{BAD, GOOD};

    fn sample(width: Option<usize>) -> Table {
        let red_if_full = |cell: &str| if cell.is_empty() { PLAIN } else { BAD };
        let columns = vec![
            Column::text("task"),
            Column::number("reward").styled(|_| GOOD),
            Column::text("failure").styled(red_if_full),
        ];
        let mut table = Table::new(columns, width);
        table.row(["one\u{1b}[31m".to_owned(), "1".to_owned(), String::new()]);
        table.row(["two".to_owned(), "0".to_owned(), "a failure with a long message".to_owned()]);
        table
    }

    #[test]
    fn colours_are_of_cells_and_of_no_border() {
        let text = sample(None).to_string();
        assert!(text.contains(&painted(GOOD, "      1 ")), "{text:?}");
        assert_eq!(text.matches(&format!("{BAD}")).count(), 1, "{text:?}");
        assert_eq!(text.matches('\u{1b}').count(), 6, "{text:?}");
    }

    #[test]
    fn a_table_fits_its_width() {
        let text = strip_str(&sample(Some(40)).to_string()).to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 40), "{text}");
        assert!(text.contains("long"), "{text}");
    }
}
