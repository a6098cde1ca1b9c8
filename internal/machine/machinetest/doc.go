// Package machinetest is what tests ask of machines: which edges a Mermaid diagram draws, and which a CHECK in SQL
// lets into a table. Diagrams are read in the published designs and in our own pages, and compared with the tables.
package machinetest
