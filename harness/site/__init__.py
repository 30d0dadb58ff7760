"""The published dashboard: pictures, our own pages, and asv's pages made to work offline."""
